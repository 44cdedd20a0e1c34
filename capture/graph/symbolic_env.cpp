#include "capture/graph/symbolic_env.h"

#include "base/check.h"

namespace hindcast::capture {

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
    default:
      HC_UNSUPPORTED("a program whose sizes are made of real numbers, in a trace with other sizes");
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
    default:
      HC_UNSUPPORTED("a program whose numbers are powers of sizes, in a trace with other sizes");
  }
}

void SymbolicEnv::require_relations() {
  for (const Relation& relation : table_.relations()) {
    if (compare(relation) != relation.outcome) HC_UNSUPPORTED("a program that is not for these sizes: {}", table_.describe(relation));
  }
}

bool SymbolicEnv::compare(const Relation& relation) {
  if (table_.type(relation.lhs) != ExprType::Int || table_.type(relation.rhs) != ExprType::Int)
    HC_UNSUPPORTED("a program that compares real numbers, in a trace with other sizes");
  const c10::SymInt lhs = integer(relation.lhs), rhs = integer(relation.rhs);
  switch (relation.cmp) {
    case Cmp::Less:
      return lhs < rhs;
    case Cmp::LessEqual:
      return lhs <= rhs;
    default:
      return lhs == rhs;
  }
}

}  // namespace hindcast::capture
