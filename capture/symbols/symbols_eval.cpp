// Evaluates expressions at new values. Operands have smaller ids than the expressions that use them, so one pass in id order is enough.

#include "capture/symbols/plain_integers.h"
#include "hindcast/symbols.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace hindcast::capture {
namespace {

bool has_no_operands(ExprKind kind) {
  return kind == ExprKind::IntConst || kind == ExprKind::IntSymbol || kind == ExprKind::FloatConst || kind == ExprKind::FloatSymbol;
}

}  // namespace

Evaluator::Evaluator(const SymbolTable& table) : Evaluator(table, std::vector<bool>(table.size(), true)) {}

Evaluator::Evaluator(const SymbolTable& table, const std::vector<ExprId>& needed)
    : Evaluator(table, [&] {
        std::vector<bool> marks(table.size());
        for (const ExprId id : needed) marks[id.index] = true;
        return marks;
      }()) {}

Evaluator::Evaluator(const SymbolTable& table, std::vector<bool> needed)
    : slots_(table.size()), ints_(table.int_symbols()), floats_(table.float_symbols()) {
  for (const Relation& relation : table.relations()) {
    needed[relation.lhs.index] = needed[relation.rhs.index] = true;
    checks_.push_back({table.type(relation.lhs), relation.cmp, relation.outcome, relation.lhs.index, relation.rhs.index});
  }
  for (uint32_t i = static_cast<uint32_t>(table.size()); i-- > 0;) {
    const Expr& e = table.expr({i});
    // A size symbol is always checked to be non-negative: comparisons were decided by its sign.
    if (e.kind == ExprKind::IntSymbol && e.non_negative) needed[i] = true;
    // Kernels split sizes by constants that are no tensor's size.
    if (e.kind == ExprKind::IntConst) needed[i] = true;
    // Truth values are never computed: decisions about them became relations between numbers.
    if (!needed[i] || type_of(e.kind) == ExprType::Bool) continue;
    if (!has_no_operands(e.kind)) {
      needed[e.a.index] = true;
      if (!is_unary(e.kind)) needed[e.b.index] = true;
    }
    steps_.push_back({e.kind, e.kind == ExprKind::IntSymbol && e.non_negative, i, e.a.index, e.b.index, e.payload});
  }
  std::reverse(steps_.begin(), steps_.end());
  order_by_unbacked(table);
}

// Stable: operands still precede the expressions that use them.
void Evaluator::order_by_unbacked(const SymbolTable& table) {
  step_ends_.clear();
  check_ends_.clear();
  std::vector<size_t> bound_by;
  for (uint32_t e = 0; table.unbacked_symbols() != 0 && e < table.size(); ++e) bound_by.push_back(table.bound_by({e}));
  const auto order = [&](auto& list, std::vector<size_t>& ends, auto of) {
    std::stable_sort(list.begin(), list.end(), [&](const auto& a, const auto& b) { return of(a) < of(b); });
    for (size_t bound = 0; bound < table.unbacked_symbols(); ++bound) {
      const auto end = std::partition_point(list.begin(), list.end(), [&](const auto& each) { return of(each) <= bound; });
      ends.push_back(static_cast<size_t>(end - list.begin()));
    }
  };
  if (!bound_by.empty()) {
    order(steps_, step_ends_, [&](const Step& step) { return bound_by[step.out]; });
    order(checks_, check_ends_, [&](const Check& check) { return std::max(bound_by[check.lhs], bound_by[check.rhs]); });
  }
  step_ends_.push_back(steps_.size());
  check_ends_.push_back(checks_.size());
}

bool Evaluator::evaluate(const Bindings& bindings, Env& env) const {
  const size_t unbound = ints_ - bindings.ints.size();  // huge if there are more bindings than symbols
  if (unbound >= step_ends_.size() || bindings.floats.size() != floats_) return false;
  env.values.resize(slots_);
  env.unbacked = step_ends_.size() - 1 - unbound;
  Number* const values = env.values.data();
  bool valid = true;
  const auto whole_or_fail = [&](std::optional<int64_t> value) {
    valid &= value.has_value();
    return value.value_or(0);
  };
  for (const Step& step : std::span(steps_).first(step_ends_[env.unbacked])) {
    Number& out = values[step.out];
    const Number a = values[step.a], b = values[step.b];
    switch (step.kind) {
      case ExprKind::IntConst:
      case ExprKind::FloatConst:
        out = step.payload;
        break;
      case ExprKind::IntSymbol:
        out.i = bindings.ints[static_cast<size_t>(step.payload.i)];
        valid &= !(step.must_not_be_negative && out.i < 0);
        break;
      case ExprKind::FloatSymbol:
        out.f = bindings.floats[static_cast<size_t>(step.payload.i)];
        break;
      case ExprKind::Add:
        out.i = wrapping_add(a.i, b.i);
        break;
      case ExprKind::Mul:
        out.i = wrapping_mul(a.i, b.i);
        break;
      case ExprKind::Div:
        out.i = whole_or_fail(quotient(a.i, b.i));
        break;
      case ExprKind::Mod:
        out.i = whole_or_fail(remainder(a.i, b.i));
        break;
      case ExprKind::Min:
        out.i = std::min(a.i, b.i);
        break;
      case ExprKind::Max:
        out.i = std::max(a.i, b.i);
        break;
      case ExprKind::Floor:
        out.i = whole_or_fail(whole(std::floor(a.f)));
        break;
      case ExprKind::Ceil:
        out.i = whole_or_fail(whole(std::ceil(a.f)));
        break;
      case ExprKind::FromInt:
        out.f = static_cast<double>(a.i);
        break;
      case ExprKind::FAdd:
        out.f = a.f + b.f;
        break;
      case ExprKind::FSub:
        out.f = a.f - b.f;
        break;
      case ExprKind::FMul:
        out.f = a.f * b.f;
        break;
      case ExprKind::FDiv:
        out.f = a.f / b.f;
        break;
      case ExprKind::FNeg:
        out.f = -a.f;
        break;
      case ExprKind::FPow:
        out.f = std::pow(a.f, b.f);
        break;
      case ExprKind::Equal:
      case ExprKind::Less:
      case ExprKind::LessEqual:
      case ExprKind::And:
      case ExprKind::Or:
      case ExprKind::Not:
        break;  // truth values have no steps
    }
  }
  return valid;
}

bool Evaluator::relations_hold(const Env& env) const {
  const auto checks = std::span(checks_).first(check_ends_[env.unbacked]);
  return std::all_of(checks.begin(), checks.end(), [&](const Check& check) {
    const Number a = env.values[check.lhs], b = env.values[check.rhs];
    const auto holds = [&](auto x, auto y) {
      switch (check.cmp) {
        case Cmp::Equal:
          return x == y;
        case Cmp::Less:
          return x < y;
        case Cmp::LessEqual:
          return x <= y;
        case Cmp::SameBits:
          return std::bit_cast<int64_t>(x) == std::bit_cast<int64_t>(y);
      }
      return false;
    };
    return (check.type == ExprType::Float ? holds(a.f, b.f) : holds(a.i, b.i)) == check.outcome;
  });
}

Bindings bindings_at_capture(const SymbolTable& symbols) {
  Bindings bindings;
  for (uint32_t e = 0; e < symbols.size(); ++e) {
    const Expr& expr = symbols.expr({e});
    if (expr.kind == ExprKind::IntSymbol) bindings.ints.push_back(expr.hint.i);
    if (expr.kind == ExprKind::FloatSymbol) bindings.floats.push_back(expr.hint.f);
  }
  return bindings;
}

}  // namespace hindcast::capture
