#pragma once
// What calls of kernels do alike on all devices: sizes, scalars, memory for results, steps through tensors.

#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/group.h"
#include "codegen/fuse/shapes.h"
#include "codegen/plan/plan.h"

#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <vector>

namespace hindcast::codegen {

/// "kernel of 2 ops: mul, gelu_backward".
std::string describe_kernel(const Group& group);

using Ints = c10::SmallVector<int64_t, kMaxRank>;
using Pointers = c10::SmallVector<char*, 32>;

Ints sizes_of(const std::vector<capture::ExprId>& sizes, const capture::Env& env);
Ints row_major_strides(at::IntArrayRef sizes);
/// `order`: dims, outermost first; empty: as they are.
Ints dense_strides(at::IntArrayRef sizes, c10::ArrayRef<uint8_t> order);
/// The number in a tensor of the host, of no dims.
double number_in(const at::Tensor& tensor);

/// A group's scalars; those that never change are known before any call.
class ScalarArgs {
 public:
  explicit ScalarArgs(const Group& group);
  /// `step` and `slots`: where its numbers of the host are.
  c10::SmallVector<double, 16> values(const capture::Env& env, const Step& step, const Slots& slots) const;
  /// Of a group that has none.
  c10::SmallVector<double, 16> values(const capture::Env& env) const;
  bool change() const { return !changing_.empty(); }
  bool are_in_tensors() const { return !numbers_.empty(); }

 private:
  std::vector<double> values_;
  std::vector<std::pair<size_t, GroupScalar>> changing_;
  std::vector<std::pair<size_t, size_t>> numbers_;  // with their place among a step's inputs
};
/// An uninitialised tensor, from the allocator of the backend whose kernel is called.
using MakeTensor = c10::function_ref<at::Tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type)>;
/// A tensor whose memory holds its values, as those with the negative, conjugate or zero bit do not.
void make_plain(at::Tensor& tensor);
/// The tensor's memory, laid out otherwise.
at::Tensor alias_of(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);
/// Memory for results: of an operand that lies as the result will, is used here for the last time and held by nobody else, else
/// new. Each operand gives its memory once.
class ResultMemory {
 public:
  /// Of the step's first `loads` inputs, before others hold them.
  ResultMemory(const Step& step, const Slots& slots, size_t loads, MakeTensor make_new, const CostModel& costs);
  at::Tensor make(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

 private:
  const MakeTensor make_new_;
  c10::SmallVector<const at::Tensor*, 8> given_;
};

/// By how many bytes the tensor goes on with each axis of the domain. A tensor that is read as another shape is made contiguous, one that
/// is read with zeros around it gets them.
Ints steps_of(at::Tensor& tensor, const Access& access, at::IntArrayRef domain, const capture::Env& env);
/// The same of memory that has these sizes and these strides in bytes. `dim_of_axis`: as Access has it.
Ints steps_of(at::IntArrayRef sizes, Ints strides, const std::vector<int8_t>& dim_of_axis, at::IntArrayRef domain);

/// For a tensor that is read with zeros around it, by dim: how many of them come before its first element.
Ints offsets_of(const Access& access, const capture::Env& env);
/// The same as at::constant_pad_nd's numbers.
std::vector<int64_t> pad_of(const at::Tensor& tensor, const Access& access, const capture::Env& env);

/// Where along an axis or a loop a tensor has elements; around them it has zeros.
struct Span {
  int64_t begin = 0, end = 0;
  bool is_all_of(int64_t size) const { return begin == 0 && end == size; }
};
using Spans = c10::SmallVector<Span, kMaxRank>;  // by axis
/// How a tensor with zeros around it lies in the domain.
struct PaddedPlace {
  int64_t first = 0;  // bytes from its first element to where the domain's first would be
  Ints steps;
  Spans spans;
};
/// nullopt: no element of it lies in the domain.
std::optional<PaddedPlace> place_padded(const at::Tensor& tensor, const Access& access, at::IntArrayRef domain, const capture::Env& env);

/// One loop of a nest, with the bytes that each tensor steps.
struct Loop {
  int64_t size = 1;
  c10::SmallVector<int64_t, 32> steps;
  std::vector<Span> spans = {};  // by tensor; empty: all of them have all elements
};
/// Loops over axes, outermost first, neighbours made one where all tensors step through both alike. `steps`: by tensor, then by
/// axis; `spans`: the same, empty for a tensor that has all elements, and altogether where all have. At least one loop.
c10::SmallVector<Loop, 4> make_nest(at::IntArrayRef domain, c10::ArrayRef<uint8_t> axes, c10::ArrayRef<Ints> steps,
                                    c10::ArrayRef<Spans> spans = {});

}  // namespace hindcast::codegen
