// Truth values, and decisions that become relations.

#include "capture/symbols/symbol_forms.h"

#include <algorithm>
#include <stdexcept>

namespace hindcast::capture {

bool SymbolTable::is_never_negative(const Linear& sum, int64_t at_least) const {
  return sum.constant >= at_least && std::all_of(sum.terms.begin(), sum.terms.end(), [&](const Linear::Term& term) {
           return term.coefficient > 0 && expr(term.id).non_negative;
         });
}

std::optional<bool> SymbolTable::known(Cmp cmp, ExprId a, ExprId b) const {
  const Linear up = difference(b, a), down = difference(a, b);
  if (cmp == Cmp::Equal || cmp == Cmp::SameBits) {
    if (up.terms.empty()) return up.constant == 0;
    if (is_never_negative(up, 1) || is_never_negative(down, 1)) return false;
    return std::nullopt;
  }
  const int64_t gap = cmp == Cmp::Less ? 1 : 0;
  if (is_never_negative(up, gap)) return true;
  if (is_never_negative(down, 1 - gap)) return false;
  return std::nullopt;
}

ExprId SymbolTable::compare(Cmp cmp, ExprId a, ExprId b) {
  if (type(a) != ExprType::Float && type(b) != ExprType::Float) {
    if (auto answer = known(cmp, a, b)) return integer(*answer);
    if (cmp == Cmp::LessEqual) return negate(compare(Cmp::Less, b, a));
    if (cmp == Cmp::Less) return intern(ExprKind::Less, a, b, of_int(0), of_int(hint(a) < hint(b)), true);
    if (is_constant(a) || (b < a && !is_constant(b))) std::swap(a, b);
    return intern(ExprKind::Equal, a, b, of_int(0), of_int(hint(a) == hint(b)), true);
  }
  a = to_real(a);
  b = to_real(b);
  const double x = real_hint(a), y = real_hint(b);
  const auto [kind, value] = [&]() -> std::pair<ExprKind, bool> {
    switch (cmp) {
      case Cmp::Equal:
        return {ExprKind::Equal, x == y};
      case Cmp::Less:
        return {ExprKind::Less, x < y};
      case Cmp::LessEqual:
        return {ExprKind::LessEqual, x <= y};
      case Cmp::SameBits:
        break;
    }
    throw std::logic_error("SameBits is a relation, not an expression: use pin_real");
  }();
  if (is_constant(a) && is_constant(b)) return integer(value);
  return intern(kind, a, b, of_int(0), of_int(value), true);
}

ExprId SymbolTable::both(ExprId a, ExprId b) {
  if (auto value = constant(a)) return *value ? b : a;
  if (auto value = constant(b)) return *value ? a : b;
  return a == b ? a : intern(ExprKind::And, a, b, of_int(0), of_int(hint(a) & hint(b)), true);
}

ExprId SymbolTable::either(ExprId a, ExprId b) {
  if (auto value = constant(a)) return *value ? a : b;
  if (auto value = constant(b)) return *value ? b : a;
  return a == b ? a : intern(ExprKind::Or, a, b, of_int(0), of_int(hint(a) | hint(b)), true);
}

ExprId SymbolTable::negate(ExprId a) {
  if (auto value = constant(a)) return integer(*value ? 0 : 1);
  if (expr(a).kind == ExprKind::Not) return expr(a).a;
  return intern(ExprKind::Not, a, {}, of_int(0), of_int(!hint(a)), true);
}

bool SymbolTable::is_steady(ExprId id) const {
  const Expr& e = expr(id);
  if (is_constant(id)) return true;
  if (e.kind == ExprKind::IntSymbol || e.kind == ExprKind::FloatSymbol) return steady_.count(id.index) != 0;
  return is_steady(e.a) && is_steady(e.b);
}

bool SymbolTable::contains(ExprId whole, ExprId part) const {
  if (whole == part) return true;
  const Expr& e = expr(whole);
  const bool is_leaf = is_constant(whole) || e.kind == ExprKind::IntSymbol || e.kind == ExprKind::FloatSymbol;
  return !is_leaf && (contains(e.a, part) || contains(e.b, part));
}

void SymbolTable::record(Cmp cmp, ExprId a, ExprId b, bool outcome) {
  if (is_looked_at_) return;
  // The constant may be the size itself, read as a number before. Sizes 0 and 1 are special.
  const bool is_number = cmp == Cmp::Equal && outcome && type(a) == ExprType::Int && (is_constant(a) || is_constant(b));
  const bool is_backed = bound_by(a) == 0 && bound_by(b) == 0;
  if (allows_unguarded_reads_ && is_number && is_backed && hint(a) > 1 && !(is_steady(a) && is_steady(b))) {
    const ExprId read = is_constant(a) ? b : a;
    if (std::ranges::find(unguarded_reads_, read) == unguarded_reads_.end()) unguarded_reads_.push_back(read);
    return;
  }
  const Relation relation{a, cmp, b, outcome};
  if (recorded_.insert(shape_of(relation)).second) relations_.push_back(relation);
}

SymbolTable::Shape SymbolTable::shape_of(const Relation& relation) {
  return {ExprKind::Equal, relation.lhs.index, relation.rhs.index, static_cast<int64_t>(relation.cmp)};
}

// A conjunction that came out false is explained by one false side: guarding that side alone is enough, and stronger
// relations than needed only cost another variant.
bool SymbolTable::decide(ExprId truth) {
  const Expr e = expr(truth);
  const bool outcome = e.hint.i != 0;
  if (e.kind == ExprKind::IntConst) return outcome;
  if (e.kind == ExprKind::Not) return !decide(e.a);
  if (e.kind == ExprKind::And || e.kind == ExprKind::Or) {
    const bool needs_both = outcome == (e.kind == ExprKind::And);
    const bool first_explains = (hint(e.a) != 0) == outcome;
    if (needs_both || first_explains) decide(e.a);
    if (needs_both || !first_explains) decide(e.b);
    return outcome;
  }
  if (e.kind == ExprKind::Equal)
    record(Cmp::Equal, e.a, e.b, outcome);
  else if (e.kind == ExprKind::Less)
    record(Cmp::Less, e.a, e.b, outcome);
  else if (e.kind == ExprKind::LessEqual)
    record(Cmp::LessEqual, e.a, e.b, outcome);
  else
    throw std::logic_error("decide: " + str(truth) + " is not a truth value");
  return outcome;
}

bool SymbolTable::decide(Cmp cmp, ExprId a, ExprId b) { return decide(compare(cmp, a, b)); }

int64_t SymbolTable::pin(ExprId a) {
  if (type(a) != ExprType::Int) throw std::logic_error("pin: " + str(a) + " is not an integer");
  const int64_t value = hint(a);
  equal(a, integer(value));
  return value;
}

double SymbolTable::pin_real(ExprId a) {
  a = to_real(a);
  const double value = real_hint(a);
  if (expr(a).kind == ExprKind::FromInt)
    pin(expr(a).a);
  else if (!is_constant(a))
    record(Cmp::SameBits, a, real(value), true);
  return value;
}

bool SymbolTable::forget_pin(ExprId float_symbol) {
  const auto pin = std::find_if(relations_.begin(), relations_.end(),
                                [&](const Relation& relation) { return relation.cmp == Cmp::SameBits && relation.lhs == float_symbol; });
  if (pin == relations_.end()) return false;
  recorded_.erase(shape_of(*pin));
  relations_.erase(pin);
  return true;
}

}  // namespace hindcast::capture
