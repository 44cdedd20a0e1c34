#pragma once
// What a shape rule sees: the call's arguments by name, and the decisions that rules share. Included only by this folder's
// .cpp files and tests.

#include "capture/shape_rules/shape_rules.h"

#include <span>
#include <string_view>

namespace hindcast::capture {

/// Thrown by a rule, or by its queries, if it does not support this use of the op.
struct NoRule {};

inline void require(bool condition) {
  if (!condition) throw NoRule();
}

class ShapeCall {
 public:
  ShapeCall(const c10::FunctionSchema& schema, const std::vector<Argument>& args, SymbolTable& symbols,
            c10::ArrayRef<std::vector<int64_t>> real_outputs, std::string_view likes)
      : symbols(symbols), likes(likes), schema_(schema), args_(args), real_outputs_(real_outputs) {}

  SymbolTable& symbols;
  std::string_view likes;  // the row's own text, e.g. the arguments whose sizes the outputs have

  // -- arguments. A name that the schema does not have, or a value of another kind, throws NoRule.
  bool has(std::string_view name) const;  ///< an argument of that name that is not None
  bool has_tensor(std::string_view name) const;
  const Sizes& tensor(std::string_view name) const;
  const std::vector<Sizes>& tensors(std::string_view name) const;
  const std::vector<std::optional<IndexTensor>>& indices(std::string_view name) const;
  const std::vector<Argument>& args() const { return args_; }
  ExprId integer(std::string_view name) const;                ///< int, SymInt, or a Scalar that is one
  Sizes integers(std::string_view name) const;                ///< a list, or one integer as a list of one
  Sizes integers(std::string_view name, size_t count) const;  ///< a list of one stands for `count` equal ones
  int64_t number(std::string_view name) const;                ///< pinned if symbolic
  std::vector<int64_t> numbers(std::string_view name) const;  ///< None is the empty list
  bool flag(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  size_t dim(std::string_view name, size_t rank) const;  ///< counted from the front

  // -- the real results
  size_t outputs() const { return real_outputs_.size(); }
  const std::vector<int64_t>& real(size_t i) const { return real_outputs_[i]; }
  /// `sizes`, unless output `i` was undefined.
  Sizes unless_undefined(size_t i, const Sizes& sizes) const;

  // -- expressions
  ExprId constant(int64_t value) const { return symbols.integer(value); }
  bool is_one(ExprId size) const { return symbols.equal(size, constant(1)); }
  ExprId product(const Sizes& sizes) const;
  /// The simpler of two expressions for one size; relates them.
  ExprId same(ExprId a, ExprId b) const;
  Sizes same(const Sizes& a, const Sizes& b) const;
  Sizes broadcast(const Sizes& a, const Sizes& b) const;

 private:
  const Argument* find(std::string_view name) const;
  const c10::IValue& value(std::string_view name) const;

  const c10::FunctionSchema& schema_;
  const std::vector<Argument>& args_;
  c10::ArrayRef<std::vector<int64_t>> real_outputs_;
};

using Outputs = std::vector<Sizes>;
using Rule = Outputs (*)(const ShapeCall&);

/// One row. `ops`: names separated by spaces; "sum" is the overload without a name, "sum.dim_IntList" that overload, "sum.*" all. In-place
/// and copying forms (add_, slice_copy) follow from the row of the plain form.
struct RuleRow {
  std::string_view ops;
  Rule rule;
  std::string_view likes = {};
};

std::span<const RuleRow> pointwise_rules();
/// Those of base/pointwise_ops.def, some twice. All broadcast their tensors, except ops with a row of their own.
std::span<const std::string_view> names_of_pointwise_ops();
std::span<const RuleRow> reduction_rules();
std::span<const RuleRow> view_rules();
std::span<const RuleRow> indexing_rules();
std::span<const RuleRow> matmul_rules();
std::span<const RuleRow> linalg_rules();
std::span<const RuleRow> convolution_rules();
std::span<const RuleRow> norm_rules();
std::span<const RuleRow> factory_rules();

// -- rules that more than one table uses
/// All outputs have the broadcast sizes of all tensors given.
Outputs broadcast_all(const ShapeCall& call);
/// Output i has the sizes of the i-th argument named in `likes` (the last one for the rest), or is undefined.
Outputs same_as(const ShapeCall& call);
/// The argument named in `likes` is the list of sizes.
Outputs sizes_given(const ShapeCall& call);

size_t wrap_dim(int64_t dim, size_t rank);
std::vector<std::string_view> words(std::string_view text);

}  // namespace hindcast::capture
