// Expressions as LibTorch sees them: c10::SymNodeImpl, which a SymInt, SymFloat or SymBool points to.
//
// LibTorch calls guard_* when it needs a plain value. The answer is always the hint's, so that a trace takes the branch that the stock
// engine takes, and the relation behind that answer is recorded. This also holds for the variants with a default (guard_or_false,
// statically_known_true, ...): another branch could mean another rounding.

#include "hindcast/symbols.h"

#include <c10/core/Contiguity.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/SymNodeImpl.h>

#include <stdexcept>

namespace hindcast::capture {
namespace {

class Symbolic final : public c10::SymNodeImpl {
  using IntOp = ExprId (SymbolTable::*)(ExprId, ExprId);
  using Nodes = c10::ArrayRef<c10::SymNode>;

 public:
  Symbolic(std::shared_ptr<SymbolTable> table, ExprId id, ExprType type) : table_(std::move(table)), id_(id), type_(type) {}

  const SymbolTable* table() const { return table_.get(); }
  ExprId id() const { return id_; }

  bool is_int() override { return type_ == ExprType::Int; }
  bool is_bool() override { return type_ == ExprType::Bool; }
  bool is_float() override { return type_ == ExprType::Float; }

  c10::SymNode add(const c10::SymNode& other) override { return arithmetic(&SymbolTable::add, ExprKind::FAdd, other); }
  c10::SymNode sub(const c10::SymNode& other) override { return arithmetic(&SymbolTable::sub, ExprKind::FSub, other); }
  c10::SymNode mul(const c10::SymNode& other) override { return arithmetic(&SymbolTable::mul, ExprKind::FMul, other); }
  c10::SymNode truediv(const c10::SymNode& other) override { return real(ExprKind::FDiv, other); }
  c10::SymNode floordiv(const c10::SymNode& other) override { return integers_only(&SymbolTable::div, "floordiv", other); }
  c10::SymNode mod(const c10::SymNode& other) override { return integers_only(&SymbolTable::mod, "mod", other); }
  c10::SymNode sym_min(const c10::SymNode& other) override { return extreme(&SymbolTable::min, true, other); }
  c10::SymNode sym_max(const c10::SymNode& other) override { return extreme(&SymbolTable::max, false, other); }
  c10::SymNode pow(const c10::SymNode& other) override {
    if (is_float() || other->is_float()) return real(ExprKind::FPow, other);
    return power(table_->pin(operand(other)));
  }
  c10::SymNode float_pow(const c10::SymNode& other) override { return real(ExprKind::FPow, other); }
  c10::SymNode neg() override { return is_float() ? make(table_->real_neg(id_), ExprType::Float) : make(table_->neg(id_), ExprType::Int); }
  c10::SymNode ceil() override { return make(table_->ceil(id_), ExprType::Int); }
  c10::SymNode floor() override { return make(table_->floor(id_), ExprType::Int); }
  c10::SymNode sym_float() override { return make(table_->to_real(id_), ExprType::Float); }

  c10::SymNode eq(const c10::SymNode& other) override { return compare(Cmp::Equal, id_, operand(other)); }
  c10::SymNode ne(const c10::SymNode& other) override { return eq(other)->sym_not(); }
  c10::SymNode lt(const c10::SymNode& other) override { return compare(Cmp::Less, id_, operand(other)); }
  c10::SymNode le(const c10::SymNode& other) override { return compare(Cmp::LessEqual, id_, operand(other)); }
  c10::SymNode gt(const c10::SymNode& other) override { return compare(Cmp::Less, operand(other), id_); }
  c10::SymNode ge(const c10::SymNode& other) override { return compare(Cmp::LessEqual, operand(other), id_); }

  c10::SymNode sym_and(const c10::SymNode& other) override { return truth(table_->both(id_, operand(other))); }
  c10::SymNode sym_or(const c10::SymNode& other) override { return truth(table_->either(id_, operand(other))); }
  c10::SymNode sym_not() override { return truth(table_->negate(id_)); }
  c10::SymNode sym_ite(const c10::SymNode& then_value, const c10::SymNode& else_value) override {
    return table_->decide(id_) ? then_value : else_value;
  }

  c10::SymNode clone() override { return make(id_, type_); }
  c10::SymNode wrap_int(int64_t value) override { return make(table_->integer(value), ExprType::Int); }
  c10::SymNode wrap_float(double value) override { return make(table_->real(value), ExprType::Float); }
  c10::SymNode wrap_bool(bool value) override { return truth(table_->integer(value)); }

  int64_t guard_int(const char*, int64_t) override { return table_->pin(id_); }
  double guard_float(const char*, int64_t) override { return table_->pin_real(id_); }
  bool guard_bool(const char*, int64_t) override { return table_->decide(id_); }
  bool has_hint() override { return true; }
  int64_t int_() override { return table_->pin(id_); }
  bool bool_() override { return table_->decide(id_); }
  // Text names numbers, as in eager. LibTorch also makes the messages of errors that it does not throw, so only Python's text is a guard.
  std::string str() override {
    if (is_bool()) return table_->hint(id_) != 0 ? "true" : "false";
    return is_int() ? std::to_string(table_->hint(id_)) : table_->str(id_);
  }
  std::string _graph_repr() override { return is_int() ? std::to_string(table_->pin(id_)) : str(); }

  bool is_constant() override { return table_->is_constant(id_); }
  bool is_symbolic() override { return !is_constant(); }
  std::optional<int64_t> constant_int() override { return is_int() ? table_->constant(id_) : std::nullopt; }
  std::optional<int64_t> maybe_as_int() override { return constant_int(); }
  std::optional<bool> constant_bool() override {
    const auto value = is_bool() ? table_->constant(id_) : std::nullopt;
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
  }

  // LibTorch's own algorithms over SymInts: every comparison they make is a decision here.
  c10::SymNode is_contiguous(Nodes sizes, Nodes strides) override {
    const std::vector<c10::SymInt> size_ints = symints(sizes), stride_ints = symints(strides);
    c10::SymInt numel = 1;
    for (const c10::SymInt& size : size_ints) numel *= size;
    return wrap_bool(c10::_compute_contiguous<c10::SymInt>(size_ints, stride_ints, numel));
  }
  c10::SymNode is_channels_last_contiguous_2d(Nodes sizes, Nodes strides) override {
    return wrap_bool(c10::_compute_channels_last_contiguous_2d<c10::SymInt>(symints(sizes), symints(strides)));
  }
  c10::SymNode is_channels_last_contiguous_3d(Nodes sizes, Nodes strides) override {
    return wrap_bool(c10::_compute_channels_last_contiguous_3d<c10::SymInt>(symints(sizes), symints(strides)));
  }
  c10::SymNode is_channels_last_strides_2d(Nodes sizes, Nodes strides) override {
    return wrap_bool(c10::is_channels_last_strides_2d<c10::SymInt>(symints(sizes), symints(strides)));
  }
  c10::SymNode is_channels_last_strides_3d(Nodes sizes, Nodes strides) override {
    return wrap_bool(c10::is_channels_last_strides_3d<c10::SymInt>(symints(sizes), symints(strides)));
  }
  c10::SymNode is_non_overlapping_and_dense(Nodes sizes, Nodes strides) override {
    return wrap_bool(c10::_compute_non_overlapping_and_dense<c10::SymInt>(symints(sizes), symints(strides)));
  }

 private:
  c10::SymNode make(ExprId id, ExprType type) { return c10::make_intrusive<Symbolic>(table_, id, type); }
  c10::SymNode truth(ExprId id) { return make(id, ExprType::Bool); }
  ExprId operand(const c10::SymNode& node) { return table_->expr_of(node); }
  c10::SymNode compare(Cmp cmp, ExprId a, ExprId b) { return truth(table_->compare(cmp, a, b)); }
  c10::SymNode real(ExprKind kind, const c10::SymNode& other) { return make(table_->real_op(kind, id_, operand(other)), ExprType::Float); }
  c10::SymNode arithmetic(IntOp on_ints, ExprKind on_floats, const c10::SymNode& other) {
    if (is_float() || other->is_float()) return real(on_floats, other);
    return make(((*table_).*on_ints)(id_, operand(other)), ExprType::Int);
  }
  c10::SymNode integers_only(IntOp op, const char* name, const c10::SymNode& other) {
    if (is_float() || other->is_float()) {
      throw std::logic_error(std::string(name) + " of symbolic floats " + str() + " and " + other->str());
    }
    return make(((*table_).*op)(id_, operand(other)), ExprType::Int);
  }
  // For floats the side is chosen now. std::min and std::max keep the first of two equal ones.
  c10::SymNode extreme(IntOp on_ints, bool is_min, const c10::SymNode& other) {
    const ExprId right = operand(other);
    if (!is_float() && !other->is_float()) return make(((*table_).*on_ints)(id_, right), ExprType::Int);
    const bool takes_right = is_min ? table_->less(right, id_) : table_->less(id_, right);
    return make(table_->to_real(takes_right ? right : id_), ExprType::Float);
  }
  c10::SymNode power(int64_t exponent) {
    if (exponent < 0) throw std::logic_error("pow of symbolic integer " + str() + " to " + std::to_string(exponent));
    ExprId result = table_->integer(1);
    for (; exponent > 0; --exponent) result = table_->mul(result, id_);
    return make(result, ExprType::Int);
  }
  std::vector<c10::SymInt> symints(Nodes nodes) {
    std::vector<c10::SymInt> ints;
    ints.reserve(nodes.size());
    for (const c10::SymNode& node : nodes) ints.push_back(table_->make_symint(operand(node)));
    return ints;
  }

  std::shared_ptr<SymbolTable> table_;
  ExprId id_;
  ExprType type_;
};

}  // namespace

c10::SymInt SymbolTable::make_symint(ExprId id) {
  if (auto value = constant(id)) return c10::SymInt(*value);
  if (type(id) != ExprType::Int) throw std::logic_error("make_symint: " + str(id) + " is not an integer");
  return c10::SymInt(c10::SymNode(c10::make_intrusive<Symbolic>(shared_from_this(), id, ExprType::Int)));
}

c10::SymFloat SymbolTable::make_symfloat(ExprId id) {
  id = to_real(id);
  if (is_constant(id)) return c10::SymFloat(real_hint(id));
  return c10::SymFloat(c10::SymNode(c10::make_intrusive<Symbolic>(shared_from_this(), id, ExprType::Float)));
}

c10::SymBool SymbolTable::make_symbool(ExprId id) {
  if (auto value = constant(id)) return c10::SymBool(*value != 0);
  if (type(id) != ExprType::Bool) throw std::logic_error("make_symbool: " + str(id) + " is not a truth value");
  return c10::SymBool(c10::SymNode(c10::make_intrusive<Symbolic>(shared_from_this(), id, ExprType::Bool)));
}

// The value of a node that is no symbol.
static std::optional<int64_t> value_of(const c10::SymNode& node) {
  if (const auto value = node->is_bool() ? node->constant_bool() : std::nullopt) return *value;
  if (const auto value = node->constant_int()) return value;
  return node->maybe_as_int();
}

bool SymbolTable::is_foreign(const c10::SymNode& node) { return dynamic_cast<Symbolic*>(node.get()) == nullptr && !value_of(node); }

ExprId SymbolTable::expr_of(const c10::SymNode& node) {
  if (auto* ours = dynamic_cast<Symbolic*>(node.get())) {
    if (ours->table() != this) throw std::logic_error("a symbol of another variant: " + ours->str());
    return ours->id();
  }
  if (const auto value = value_of(node)) return integer(*value);
  throw std::logic_error("a symbolic number of another library: " + node->str());
}

bool SymbolTable::is_steady(const c10::SymInt& size) {
  if (!size.is_symbolic()) return true;
  const auto* ours = dynamic_cast<Symbolic*>(size.toSymNodeImplUnowned());
  return ours != nullptr && ours->table()->is_steady(ours->id());
}

bool SymbolTable::contains(const c10::SymInt& whole, const c10::SymInt& part) {
  if (!whole.is_symbolic() || !part.is_symbolic()) return false;
  const auto* a = dynamic_cast<Symbolic*>(whole.toSymNodeImplUnowned());
  const auto* b = dynamic_cast<Symbolic*>(part.toSymNodeImplUnowned());
  return a != nullptr && b != nullptr && a->table() == b->table() && a->table()->contains(a->id(), b->id());
}

ExprId SymbolTable::expr_of(const c10::SymInt& value) {
  if (auto plain = value.maybe_as_int()) return integer(*plain);
  return expr_of(value.toSymNode());
}

ExprId SymbolTable::expr_of(const c10::SymFloat& value) {
  return value.is_symbolic() ? expr_of(value.toSymNodeImpl()) : real(value.as_float_unchecked());
}

ExprId SymbolTable::expr_of(const c10::SymBool& value) {
  if (auto plain = value.maybe_as_bool()) return integer(*plain);
  return expr_of(value.toSymNodeImpl());
}

ExprId SymbolTable::expr_of(const c10::Scalar& value) {
  if (value.isSymbolic()) {
    if (value.isFloatingPoint()) return expr_of(value.toSymFloat());
    return value.isBoolean() ? expr_of(value.toSymBool()) : expr_of(value.toSymInt());
  }
  if (value.isComplex()) throw std::logic_error("a complex scalar has no symbolic expression");
  if (value.isFloatingPoint()) return real(value.toDouble());
  return integer(value.isBoolean() ? value.toBool() : value.toLong());
}

}  // namespace hindcast::capture
