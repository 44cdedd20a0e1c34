#pragma once
// Argument preparation that the kernel calls of all backends share: sizes, scalars, memory for results, byte strides.

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
/// `order`: dims, outermost first; empty: row-major.
Ints dense_strides(at::IntArrayRef sizes, c10::ArrayRef<uint8_t> order);
/// The number in a zero-dim CPU tensor.
double number_in(const at::Tensor& tensor);

/// A group's scalars; constants are evaluated once, before any call.
class ScalarArgs {
 public:
  explicit ScalarArgs(const Group& group);
  /// `step` and `slots`: where to find scalars that are in CPU tensors.
  c10::SmallVector<double, 16> values(const capture::Env& env, const Step& step, const Slots& slots) const;
  /// The same for a group without scalars in tensors.
  c10::SmallVector<double, 16> values(const capture::Env& env) const;
  bool change() const { return !changing_.empty(); }
  bool are_in_tensors() const { return !numbers_.empty(); }

 private:
  std::vector<double> values_;
  std::vector<std::pair<size_t, GroupScalar>> changing_;
  std::vector<std::pair<size_t, size_t>> numbers_;  // scalars in tensors: index in values_, index in Step::inputs
};
/// An uninitialised tensor, from the allocator of the backend whose kernel is called.
using MakeTensor = c10::function_ref<at::Tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type)>;
/// Whether the tensor's memory does not hold its values, that is, whether it has the negative, conjugate or zero bit.
bool is_lazy(const at::Tensor& tensor);
/// Materialises the tensor if it is lazy.
void make_plain(at::Tensor& tensor);
/// A tensor with the same memory and other sizes and strides.
at::Tensor alias_of(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides);
/// Memory for results: that of an operand with the same layout whose last use this is and which has no other owner, otherwise new memory.
/// Each operand's memory is reused at most once.
class ResultMemory {
 public:
  /// Considers the step's first `loads` inputs. Must be constructed before anything else refers to them.
  ResultMemory(const Step& step, const Slots& slots, size_t loads, MakeTensor make_new, const CostModel& costs);
  at::Tensor make(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type);

 private:
  const MakeTensor make_new_;
  c10::SmallVector<const at::Tensor*, 8> given_;
};

/// The tensor's byte stride along each axis of the domain. A tensor that is read as another shape is made contiguous, and one that is read
/// as padded is padded.
Ints byte_strides_of(at::Tensor& tensor, const Access& access, at::IntArrayRef domain, const capture::Env& env);
/// The same for memory with these sizes and byte strides. `dim_of_axis`: as in Access.
Ints byte_strides_of(at::IntArrayRef sizes, Ints strides, const std::vector<int8_t>& dim_of_axis, at::IntArrayRef domain);

/// For a tensor that is read as padded, by dim: the number of zeros before its first element.
Ints offsets_of(const Access& access, const capture::Env& env);
/// The same in the form of at::constant_pad_nd's argument `pad`.
std::vector<int64_t> pad_of(const at::Tensor& tensor, const Access& access, const capture::Env& env);

/// The range along an axis or a loop in which a padded tensor has elements; outside it has zeros.
struct Span {
  int64_t begin = 0, end = 0;
  bool is_all_of(int64_t size) const { return begin == 0 && end == size; }
};
using Spans = c10::SmallVector<Span, kMaxRank>;  // by axis
/// The place of a padded tensor in the domain.
struct PaddedPlace {
  int64_t first = 0;  // bytes from its first element to where the domain's first would be
  Ints steps;
  Spans spans;
};
/// nullopt if none of its elements lies in the domain.
std::optional<PaddedPlace> place_padded(const at::Tensor& tensor, const Access& access, at::IntArrayRef domain, const capture::Env& env);

/// One loop of a nest, with the byte stride of each tensor along it.
struct Loop {
  int64_t size = 1;
  c10::SmallVector<int64_t, 32> steps;
  std::vector<Span> spans = {};  // by tensor; empty: no tensor is padded along this loop
};
/// Loops over axes, outermost first; neighbouring axes that all tensors traverse with one stride become one loop. `steps`: byte strides by
/// tensor, then by axis; `spans`: the same, empty for an unpadded tensor, or empty as a whole if none is padded. At least one loop.
c10::SmallVector<Loop, 4> make_nest(at::IntArrayRef domain, c10::ArrayRef<uint8_t> axes, c10::ArrayRef<Ints> steps,
                                    c10::ArrayRef<Spans> spans = {});

}  // namespace hindcast::codegen
