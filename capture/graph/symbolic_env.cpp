#include "capture/graph/symbolic_env.h"

#include "base/check.h"

#include <bit>
#include <cmath>

namespace hindcast::capture {
namespace {

c10::SymInt whole(const c10::SymFloat& value, c10::SymNode (c10::SymNodeImpl::*of_symbol)(), double (*of_number)(double)) {
  if (value.is_symbolic()) return c10::SymInt((*value.toSymNodeImpl().*of_symbol)());
  return static_cast<int64_t>(of_number(value.as_float_unchecked()));
}

c10::SymFloat power(const c10::SymFloat& base, const c10::SymFloat& exponent) {
  if (!base.is_symbolic() && !exponent.is_symbolic()) return std::pow(base.as_float_unchecked(), exponent.as_float_unchecked());
  const c10::SymNode any = base.is_symbolic() ? base.toSymNodeImpl() : exponent.toSymNodeImpl();
  return c10::SymFloat(base.wrap_node(any)->float_pow(exponent.wrap_node(any)));
}

}  // namespace

c10::SymInt SymbolicEnv::integer(ExprId id) {
  auto& known = integers_[id.index];
  if (!known) known = compute_integer(table_.expr(id));
  return *known;
}

c10::SymFloat SymbolicEnv::real(ExprId id) {
  auto& known = reals_[id.index];
  if (!known) known = compute_real(table_.expr(id));
  return *known;
}

c10::SymInt SymbolicEnv::compute_integer(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::IntConst:
      return expr.payload.i;
    case ExprKind::IntSymbol:
      return ints_[static_cast<size_t>(expr.payload.i)];
    case ExprKind::Add:
      return integer(expr.a) + integer(expr.b);
    case ExprKind::Mul:
      return integer(expr.a) * integer(expr.b);
    case ExprKind::Div:
      return integer(expr.a) / integer(expr.b);
    case ExprKind::Mod:
      return integer(expr.a) % integer(expr.b);
    case ExprKind::Min:
      return integer(expr.a).min(integer(expr.b));
    case ExprKind::Max:
      return integer(expr.a).max(integer(expr.b));
    case ExprKind::Floor:
      return whole(real(expr.a), &c10::SymNodeImpl::floor, &std::floor);
    case ExprKind::Ceil:
      return whole(real(expr.a), &c10::SymNodeImpl::ceil, &std::ceil);
    default:
      HC_UNSUPPORTED("an expression that is no integer");
  }
}

c10::SymFloat SymbolicEnv::compute_real(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::FloatConst:
      return expr.payload.f;
    case ExprKind::FloatSymbol:
      return floats_[static_cast<size_t>(expr.payload.i)];
    case ExprKind::FromInt: {
      const c10::SymInt value = integer(expr.a);
      return value.is_symbolic() ? c10::SymFloat(value.toSymNode()->sym_float()) : c10::SymFloat(static_cast<double>(value.expect_int()));
    }
    case ExprKind::FAdd:
      return real(expr.a) + real(expr.b);
    case ExprKind::FSub:
      return real(expr.a) - real(expr.b);
    case ExprKind::FMul:
      return real(expr.a) * real(expr.b);
    case ExprKind::FDiv:
      return real(expr.a) / real(expr.b);
    case ExprKind::FNeg:
      return c10::SymFloat(-1.0) * real(expr.a);
    case ExprKind::FPow:
      return power(real(expr.a), real(expr.b));
    default:
      HC_UNSUPPORTED("an expression that is no real number");
  }
}

void SymbolicEnv::require_relations() {
  for (const Relation& relation : table_.relations()) {
    if (compare(relation) != relation.outcome) HC_UNSUPPORTED("a program that is not for these sizes: {}", table_.describe(relation));
  }
}

bool SymbolicEnv::compare(const Relation& relation) {
  const auto holds = [&](const auto& lhs, const auto& rhs) {
    switch (relation.cmp) {
      case Cmp::Less:
        return lhs < rhs;
      case Cmp::LessEqual:
        return lhs <= rhs;
      default:
        return lhs == rhs;
    }
  };
  if (table_.type(relation.lhs) != ExprType::Float) return holds(integer(relation.lhs), integer(relation.rhs));
  c10::SymFloat lhs = real(relation.lhs), rhs = real(relation.rhs);
  if (relation.cmp != Cmp::SameBits) return holds(lhs, rhs);
  return std::bit_cast<int64_t>(lhs.guard_float(__FILE__, __LINE__)) == std::bit_cast<int64_t>(rhs.guard_float(__FILE__, __LINE__));
}

}  // namespace hindcast::capture
