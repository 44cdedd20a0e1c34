#pragma once
// One instr as a candidate for fusion: its domain, operands and expression.

#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/functors.h"
#include "codegen/fuse/shapes.h"
#include "hindcast/graph.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace hindcast::codegen {

/// Adds ops to a body. The implementation may merge repeated loads and scalars.
class BodyBuilder {
 public:
  virtual ~BodyBuilder() = default;
  /// A tensor argument that is among Member::operands.
  virtual Operand tensor(capture::ValueId value) = 0;
  Operand tensor(const capture::Arg& arg) { return tensor(arg.values[0]); }
  virtual Operand scalar(const capture::Arg& arg) = 0;  // a Scalar, float or int argument
  virtual Operand number(double value) = 0;
  /// `numerator` over the product of sizes.
  virtual Operand inverse_of(const Sizes& sizes, double numerator) = 0;
  virtual const Sizes& sizes_of(const capture::Arg& tensor) const = 0;
  virtual Operand op(FunctorName functor, std::vector<Operand> args) = 0;
  virtual Operand reduce(Reduction reduction, Operand operand) = 0;
  virtual Operand product() = 0;  // Member::product
  /// `value` in column `index` and 0 in all others.
  virtual Operand one_hot(Operand index, Operand value) = 0;
  /// The same with `other` in all others. A call throws if an index is not less than the number of columns.
  virtual Operand checked_one_hot(Operand index, Operand value, Operand other) = 0;
  /// Sets the instr's output. Pointwise: the extent is that of its operands.
  virtual void result(size_t output, Operand value, Extent extent) = 0;
};

/// A tensor that is read. Its dims match the result's dims from `first_dim` on; it is broadcast along all others.
struct MemberOperand {
  capture::ValueId value;
  size_t first_dim = 0;
  std::optional<size_t> joined = {};  // a dim of the domain that together with the next one is one dim of the tensor
};

struct Member {
  enum class Kind : uint8_t {
    Pointwise,
    Reduction,  // over `row_dims`, of operands[0]
    Rows,       // an expression with reductions over a row
    Concat,     // of `operands`, each of which has this domain
    Product,    // a matrix product, possibly plus an addend
  };
  Kind kind = Kind::Pointwise;
  std::optional<c10::Device> device = {};            // of all its tensors
  Sizes sizes;                                       // its domain, dims in the order of memory, outermost first
  std::vector<uint8_t> order;                        // by dim of the domain: the tensors' dim that it is
  uint32_t row_dims = 0;                             // Reduction, Rows: bit mask of the dims that form a row
  Reduction::Kind reduction = Reduction::Kind::Sum;  // Reduction: a Mean only over rows
  uint32_t channel_dims = 0;                         // Rows: bit mask of the dims that count channels, if a row has several
  at::ScalarType compute = at::ScalarType::Float;    // Bool: only masks, which fit any compute type
  std::vector<MemberOperand> operands;
  std::vector<capture::ValueId> numbers;             // Pointwise: CPU tensors of one number each, read as scalars
  uint8_t concat_dim = 0;                            // Concat: dim of the result
  bool is_stack = false;                             // Concat: concat_dim is new, the operands do not have it
  int64_t bytes = 0;                                 // of its largest result, at capture
  RowForward forward = RowForward::None;             // Rows: for the cost model, if the op is not fused with others
  bool checks_indices = false;                       // Rows: indices of columns must be checked
  std::optional<SegmentedNorm> segmented_norm = {};  // for the cost model
  std::optional<BodyProduct> product = {};           // Product
  std::optional<ProductShape> product_shape = {};    // Product: for the cost model
  std::vector<capture::ValueId> factors = {};        // Product: as Group::factors
  std::function<void(BodyBuilder&)> build;

  /// The dim of the domain for a dim of the tensors.
  size_t dim_of(size_t dim_of_tensors) const {
    return static_cast<size_t>(std::find(order.begin(), order.end(), dim_of_tensors) - order.begin());
  }
  bool is_in_order() const { return std::is_sorted(order.begin(), order.end()); }
};

/// Bytes of the value, with the sizes at capture.
int64_t bytes_of(const capture::Graph& graph, const capture::Value& value);

/// nullopt if only ATen can compute the instr.
std::optional<Member> describe(const capture::Graph& graph, const capture::Instr& instr);

}  // namespace hindcast::codegen
