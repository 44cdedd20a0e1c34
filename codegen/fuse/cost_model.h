#pragma once
// Decides whether fusion pays on a device. What a kernel can compute does not depend on the device and is decided in this folder; whether a
// kernel is faster than ATen depends on sizes, and is answered by a backend (codegen/cpu/cost_model.h).
//
// Inputs are plain numbers, no graph, so that the choice for a shape can be tested in isolation. Sizes are those at capture: the plan does
// not change when they do.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace hindcast::codegen {

/// The limits at which a kernel stops growing.
struct KernelLimits {
  size_t members = 0;         // ops
  size_t loads = 0;           // tensors that it reads; one more is allowed for every four ops
  size_t loads_of_large = 0;  // tensors that it reads, if one of its results is large
  int64_t large_bytes = 0;    // results of at least this size are large: they do not stay in a cache
  int64_t kept_bytes = 0;     // leaf gradients alive at once because of it; four of its largest result are allowed in any case
  int64_t waiting_bytes = 0;  // operands computed elsewhere that stay alive while it waits for more ops
  int64_t leaf_bytes = 0;     // a result of at least this size is written to leaves by the kernel itself
};

/// The rows of a sum, or of an expression with such sums. Numbers of elements.
struct RowShape {
  int64_t numel = 0;
  int64_t row = 0;         // in one row
  int64_t neighbours = 0;  // of a row that are contiguous in memory
  bool is_row_op = false;  // true: a norm, a softmax, a loss over classes; false: a plain sum
};

/// The gradient of a group norm: a row has several channels, with one segment per channel.
struct SegmentedNorm {
  int64_t numel = 0;    // elements of the input
  int64_t segment = 0;  // elements of one segment
  at::ScalarType type = at::ScalarType::Float;
  bool has_weight = false;  // each channel has its own factor
};

/// Row ops for which ATen has kernels of only one or two passes over a row.
enum class RowForward : uint8_t { None, Norm, Softmax, LogSoftmax, LogSumExp };

/// A matrix product, or a batch of them.
struct ProductShape {
  int64_t batch = 1, rows = 0, columns = 0, depth = 0;
  at::ScalarType type = at::ScalarType::Float;
};

/// An op that could not be fused with any other.
struct SingleOp {
  bool is_pointwise = false;
  bool is_row_op = false;     // a norm, a softmax, a loss over classes
  bool is_reduction = false;  // a sum over some dims
  bool reads_padded = false;  // reads an operand in place that ATen would first have to pad with zeros
  int64_t bytes = 0;          // of its largest result
  int64_t numel = 0;          // elements of its domain
  RowForward forward = RowForward::None;
  at::ScalarType type = at::ScalarType::Float;  // of the elements of its domain
  int64_t row = 0;                              // elements of one row
};

/// How much memory common subexpression elimination may keep alive only for a later reader. Bytes.
struct ReuseLimits {
  int64_t of_one = 0;  // per op
  int64_t of_all = 0;  // per graph
};

class CostModel {
 public:
  /// The device of the tensors that it covers. ATen computes all others.
  virtual c10::DeviceType device() const = 0;
  virtual const KernelLimits& limits() const = 0;
  virtual const ReuseLimits& reuse_limits() const = 0;

  /// Whether the call of a kernel over so many elements costs more than its work. If so, ops that have only the domain in common are fused.
  virtual bool is_call_bound(int64_t numel) const = 0;
  /// Whether a group with such a call stays open for later ops when a group with another domain reads it; otherwise its kernel runs then.
  virtual bool keeps_small_groups_open() const = 0;
  /// Whether two ops that have only an operand of so many bytes and the domain in common are fused, so that the operand is read once.
  virtual bool is_read_worth_sharing(int64_t bytes) const = 0;
  /// These: whether a kernel computes it; otherwise ATen does.
  virtual bool is_worth_it(const RowShape& rows) const = 0;
  virtual bool is_worth_it(const SegmentedNorm& norm) const = 0;
  virtual bool is_worth_it(const SingleOp& op) const = 0;
  /// Whether a kernel may compute the product and the pointwise ops after it; otherwise ATen computes the product.
  virtual bool is_worth_it(const ProductShape& product) const = 0;
  /// Whether a kernel reads a tensor of `numel` elements in place as if padded to `padded` elements; otherwise ATen writes the padded
  /// tensor.
  virtual bool is_padding_read_through(int64_t numel, int64_t padded) const = 0;

  /// Whether a kernel writes the parts of a concat to their places in the result, in contiguous pieces of `piece` elements; otherwise ATen
  /// copies them there.
  virtual bool is_concat_written_in_place(int64_t piece) const = 0;
  /// Whether a call checks indices of columns before the kernel reads them (BodyLoad::is_checked).
  virtual bool checks_indices() const = 0;
  /// Whether a kernel of ops without sums reads one number for each of many short rows repeated, as many times as the row has elements.
  virtual bool repeats_numbers_of_rows() const = 0;
  /// Whether ops on one number for each of many short rows join the kernel of these rows, if no sum of a row is among their operands.
  virtual bool joins_numbers_of_rows() const = 0;
  /// Whether a result of so many bytes reuses the memory of an operand at its last use; otherwise it gets new memory.
  virtual bool is_memory_worth_taking(int64_t bytes) const = 0;
  /// Whether a kernel with so many sin, cos or tan has their forms for far angles inlined; otherwise it calls them.
  virtual bool are_far_angles_inlined(size_t functors) const = 0;

 protected:
  ~CostModel() = default;  // one per backend, never destroyed
};

}  // namespace hindcast::codegen
