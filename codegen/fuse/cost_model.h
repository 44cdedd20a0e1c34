#pragma once
// Whether fusion pays on a device. What a kernel can compute is the same for all devices, and stands in this folder; whether a kernel of it
// is faster than ATen is a matter of numbers, which a backend answers (codegen/cpu/cost_model.h).
//
// Numbers alone come in, and no graph, so that the choice for a shape can be tested alone. Sizes are those at capture: the plan stays when
// they change.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace hindcast::codegen {

/// Where a kernel stops growing.
struct KernelLimits {
  size_t members = 0;         // ops
  size_t loads = 0;           // tensors that it reads, and one more for every four ops
  size_t loads_of_large = 0;  // tensors that it reads, where one of its results is large
  int64_t large_bytes = 0;    // from here on a result is large: nobody finds it in a cache
  int64_t kept_bytes = 0;     // gradients of leaves that it makes all at once; four of its largest result are allowed in any case
  int64_t waiting_bytes = 0;  // operands that others make while it waits for more ops
  int64_t leaf_bytes = 0;     // from here on it writes a result to leaves itself, while it makes it
};

/// What a sum over rows, or an expression with such sums, goes over. Elements.
struct RowShape {
  int64_t numel = 0;
  int64_t row = 0;         // of one row
  int64_t neighbours = 0;  // of a row, side by side in memory
  bool is_row_op = false;  // a norm, a softmax, a loss over classes; else a plain sum
};

/// The gradient of a group norm: a row has several channels, and of each channel one segment.
struct SegmentedNorm {
  int64_t numel = 0;    // elements of the input
  int64_t segment = 0;  // elements of one segment
  at::ScalarType type = at::ScalarType::Float;
  bool has_weight = false;  // each channel has its own factor
};

/// Ops by rows for which ATen has kernels that go over a row once or twice.
enum class RowForward : uint8_t { None, Norm, Softmax, LogSoftmax, LogSumExp };

/// A matrix product, maybe a batch of them.
struct ProductShape {
  int64_t batch = 1, rows = 0, columns = 0, depth = 0;
  at::ScalarType type = at::ScalarType::Float;
};

/// An op that found no other to share a kernel with.
struct SingleOp {
  bool is_pointwise = false;
  bool is_row_op = false;     // a norm, a softmax, a loss over classes
  bool is_reduction = false;  // a sum over some dims
  bool reads_padded = false;  // reads in place what ATen would first have to write, with zeros around it
  int64_t bytes = 0;          // of its largest result
  int64_t numel = 0;          // elements that it goes over
  RowForward forward = RowForward::None;
  at::ScalarType type = at::ScalarType::Float;  // of what it goes over
  int64_t row = 0;                              // elements of one row
};

/// What an op that is computed once instead of twice may keep in memory for its second reader alone. Bytes.
struct ReuseLimits {
  int64_t of_one = 0;  // op
  int64_t of_all = 0;  // of a graph
};

class CostModel {
 public:
  /// Of the tensors that it speaks of. All others are ATen's.
  virtual c10::DeviceType device() const = 0;
  virtual const KernelLimits& limits() const = 0;
  virtual const ReuseLimits& reuse_limits() const = 0;

  /// The call of a kernel over so many elements costs more than its work. Ops that share nothing but their domain then share a kernel.
  virtual bool is_call_bound(int64_t numel) const = 0;
  /// Ops that both read a tensor of so many bytes, and share nothing else but their domain, share a kernel: it reads the tensor once.
  virtual bool is_read_worth_sharing(int64_t bytes) const = 0;
  /// Else the rows are ATen's.
  virtual bool is_worth_it(const RowShape& rows) const = 0;
  virtual bool is_worth_it(const SegmentedNorm& norm) const = 0;
  virtual bool is_worth_it(const SingleOp& op) const = 0;
  /// A kernel may compute the product, and what comes behind it; else the product is ATen's.
  virtual bool is_worth_it(const ProductShape& product) const = 0;
  /// A kernel reads a tensor of `numel` elements, with zeros around it up to `padded`, in place; else ATen writes them all.
  virtual bool is_padding_read_through(int64_t numel, int64_t padded) const = 0;

  /// A kernel writes the parts of a concat to their places in the whole, where they lie in pieces of `piece` elements; else ATen copies
  /// them there.
  virtual bool is_concat_written_in_place(int64_t piece) const = 0;
  /// A result takes memory of so many bytes from an operand that gives it away; else it gets new memory.
  virtual bool is_memory_worth_taking(int64_t bytes) const = 0;
  /// A kernel with so many functors of angles, which may be far from 0, has them inlined; else it calls them.
  virtual bool are_far_angles_inlined(size_t functors) const = 0;

 protected:
  ~CostModel() = default;  // one per backend, never destroyed
};

}  // namespace hindcast::codegen
