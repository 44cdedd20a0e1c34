#pragma once
// What a kernel can compute of a graph: one instr's domain, operands and expression.

#include "capture/graph/graph.h"
#include "codegen/fuse/body.h"
#include "codegen/fuse/cost_model.h"
#include "codegen/fuse/functors.h"
#include "codegen/fuse/shapes.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace hindcast::codegen {

/// Writes ops into a body. What a group's builder does with repeated loads and scalars is its own affair.
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
  virtual const Sizes& domain() const = 0;
  virtual Operand op(FunctorName functor, std::vector<Operand> args) = 0;
  virtual Operand reduce(Reduction reduction, Operand operand) = 0;
  virtual Operand product() = 0;  // Member::product
  virtual Operand one_hot(Operand index, Operand value) = 0;
  /// What the instr's output is. Pointwise: of the extent that its operands have.
  virtual void result(size_t output, Operand value, Extent extent) = 0;
};

/// A tensor that is read, with its dims from `first_dim` of the results' on; all others are broadcast.
struct MemberOperand {
  capture::ValueId value;
  size_t first_dim = 0;
  std::optional<size_t> joined = {};  // a dim of the domain: with the next it is one dim of the tensor
};

struct Member {
  enum class Kind : uint8_t {
    Pointwise,
    Reduction,  // over `row_dims`, of operands[0]
    Rows,       // an expression with reductions over a row
    Concat,     // of `operands`, each of which has this domain
    Product,    // a matrix product, maybe with what is added to it
  };
  Kind kind = Kind::Pointwise;
  std::optional<c10::Device> device = {};            // of all its tensors
  Sizes sizes;                                       // its domain, outermost dim first as memory has them
  std::vector<uint8_t> order;                        // by dim of the domain: the dim of tensors that it is
  uint32_t row_dims = 0;                             // Reduction, Rows: dims, a bit each, that make a row
  Reduction::Kind reduction = Reduction::Kind::Sum;  // Reduction: a Mean is one of rows alone
  uint32_t channel_dims = 0;                         // Rows: those that count channels, where a row has several
  at::ScalarType compute = at::ScalarType::Float;    // Bool: of masks alone, in any arithmetic
  std::vector<MemberOperand> operands;
  std::vector<capture::ValueId> numbers;             // Pointwise: tensors of the host that are one number each, read as scalars
  uint8_t concat_dim = 0;                            // Concat: of the result
  bool is_stack = false;                             // Concat: it is one that operands do not have
  int64_t bytes = 0;                                 // of its largest result, at capture
  RowForward forward = RowForward::None;             // Rows: what the cost model is to be asked where it stays alone
  std::optional<SegmentedNorm> segmented_norm = {};  // what the cost model is to be asked
  std::optional<BodyProduct> product = {};           // Product
  std::optional<ProductShape> product_shape = {};    // Product: what the cost model is to be asked
  std::vector<capture::ValueId> factors = {};        // Product: as Group::factors
  std::function<void(BodyBuilder&)> build;

  /// The dim of the domain that a dim of tensors is.
  size_t dim_of(size_t dim_of_tensors) const {
    return static_cast<size_t>(std::find(order.begin(), order.end(), dim_of_tensors) - order.begin());
  }
  bool is_in_order() const { return std::is_sorted(order.begin(), order.end()); }
};

/// At capture.
int64_t bytes_of(const capture::Graph& graph, const capture::Value& value);

/// nullopt: ATen computes it.
std::optional<Member> describe(const capture::Graph& graph, const capture::Instr& instr);

}  // namespace hindcast::codegen
