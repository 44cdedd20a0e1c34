// Building expressions in canonical form.

#include "capture/symbols/symbol_forms.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace hindcast::capture {
ExprType type_of(ExprKind kind) {
  if (kind <= ExprKind::Ceil) return ExprType::Int;
  return kind <= ExprKind::FPow ? ExprType::Float : ExprType::Bool;
}

bool is_unary(ExprKind kind) {
  return kind == ExprKind::Floor || kind == ExprKind::Ceil || kind == ExprKind::FromInt || kind == ExprKind::FNeg || kind == ExprKind::Not;
}

size_t SymbolTable::ShapeHash::operator()(const Shape& shape) const {
  uint64_t hash = static_cast<uint64_t>(shape.kind);
  for (const uint64_t part : {uint64_t{shape.a}, uint64_t{shape.b}, static_cast<uint64_t>(shape.bits)}) {
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

std::shared_ptr<SymbolTable> SymbolTable::make() { return std::shared_ptr<SymbolTable>(new SymbolTable); }
std::shared_ptr<SymbolTable> SymbolTable::copy() const { return std::shared_ptr<SymbolTable>(new SymbolTable(*this)); }

// -- symbols and constants ------------------------------------------------------------------------------------------

ExprId SymbolTable::intern(ExprKind kind, ExprId a, ExprId b, Number payload, Number hint, bool non_negative) {
  const auto [found, is_new] =
      interned_.try_emplace(Shape{kind, a.index, b.index, payload.i}, ExprId{static_cast<uint32_t>(exprs_.size())});
  if (is_new) exprs_.push_back({kind, non_negative, a, b, payload, hint});
  return found->second;
}

ExprId SymbolTable::intern_int(ExprKind kind, ExprId a, ExprId b, int64_t hint) {
  const bool na = expr(a).non_negative, nb = expr(b).non_negative;
  const bool non_negative = kind == ExprKind::Max ? na || nb : kind == ExprKind::Mod ? na : na && nb;
  return intern(kind, a, b, of_int(0), of_int(hint), non_negative);
}

ExprId SymbolTable::new_symbol(ExprKind kind, Number hint, bool non_negative, size_t& count) {
  return intern(kind, {}, {}, of_int(static_cast<int64_t>(count++)), hint, non_negative);
}

ExprId SymbolTable::size_symbol(int64_t hint) {
  if (unbacked_symbols_ != 0) throw std::logic_error("a size symbol behind an unbacked one");
  if (hint < 0) throw std::logic_error("size symbol: hint " + std::to_string(hint) + ", a size is never negative");
  return new_symbol(ExprKind::IntSymbol, of_int(hint), true, int_symbols_);
}

ExprId SymbolTable::int_symbol(int64_t hint) {
  if (unbacked_symbols_ != 0) throw std::logic_error("an integer symbol behind an unbacked one");
  return new_symbol(ExprKind::IntSymbol, of_int(hint), false, int_symbols_);
}

ExprId SymbolTable::unbacked_symbol(int64_t hint) {
  ++unbacked_symbols_;
  return new_symbol(ExprKind::IntSymbol, of_int(hint), true, int_symbols_);
}

size_t SymbolTable::bound_by(ExprId id) const {
  const Expr& e = expr(id);
  if (unbacked_symbols_ == 0 || is_constant(id) || e.kind == ExprKind::FloatSymbol) return 0;
  if (e.kind == ExprKind::IntSymbol) {
    const auto number = static_cast<size_t>(e.payload.i);
    return number < backed_symbols() ? 0 : number - backed_symbols() + 1;
  }
  return is_unary(e.kind) ? bound_by(e.a) : std::max(bound_by(e.a), bound_by(e.b));
}

ExprId SymbolTable::float_symbol(double hint) { return new_symbol(ExprKind::FloatSymbol, of_real(hint), false, float_symbols_); }

ExprId SymbolTable::integer(int64_t value) { return intern(ExprKind::IntConst, {}, {}, of_int(value), of_int(value), value >= 0); }

ExprId SymbolTable::real(double value) { return intern(ExprKind::FloatConst, {}, {}, of_real(value), of_real(value), false); }

bool SymbolTable::is_constant(ExprId id) const { return expr(id).kind == ExprKind::IntConst || expr(id).kind == ExprKind::FloatConst; }

std::optional<int64_t> SymbolTable::constant(ExprId id) const {
  if (expr(id).kind != ExprKind::IntConst) return std::nullopt;
  return expr(id).payload.i;
}

std::optional<ExprId> SymbolTable::find_integer(int64_t value) const {
  const auto found = interned_.find(Shape{ExprKind::IntConst, 0, 0, value});
  return found == interned_.end() ? std::nullopt : std::optional(found->second);
}

// -- sums and products ---------------------------------------------------------------------------------------------

void SymbolTable::add_terms(ExprId id, int64_t scale, Linear& sum) const {
  for (; expr(id).kind == ExprKind::Add; id = expr(id).a) add_terms(expr(id).b, scale, sum);
  const Expr& rest = expr(id);
  if (rest.kind == ExprKind::IntConst) {
    sum.constant = wrapping_add(sum.constant, wrapping_mul(scale, rest.payload.i));
  } else if (rest.kind == ExprKind::Mul && is_constant(rest.a)) {
    add_terms(rest.b, wrapping_mul(scale, expr(rest.a).payload.i), sum);
  } else if (scale != 0) {
    sum.add(id, scale);
  }
}

SymbolTable::Linear SymbolTable::difference(ExprId a, ExprId b) const {
  Linear sum;
  add_terms(a, 1, sum);
  add_terms(b, -1, sum);
  return sum;
}

ExprId SymbolTable::build(Linear sum) {
  std::optional<ExprId> total;
  const auto append = [&](ExprId term) {
    total = total ? intern_int(ExprKind::Add, *total, term, wrapping_add(hint(*total), hint(term))) : term;
  };
  for (const auto& [id, coefficient] : sum.terms) {
    if (coefficient == 1) {
      append(id);
    } else {
      append(intern_int(ExprKind::Mul, integer(coefficient), id, wrapping_mul(coefficient, hint(id))));
    }
  }
  if (sum.constant != 0 || !total) append(integer(sum.constant));
  return *total;
}

SymbolTable::Product SymbolTable::factors(ExprId id) const {
  Product product;
  const auto take = [&](ExprId factor) {
    if (auto value = constant(factor))
      product.coefficient = wrapping_mul(product.coefficient, *value);
    else
      product.factors.push_back(factor);
  };
  // A product is stored as `coefficient * (((f0 * f1) * f2) * ...)`.
  if (expr(id).kind == ExprKind::Mul && is_constant(expr(id).a)) {
    take(expr(id).a);
    id = expr(id).b;
  }
  for (; expr(id).kind == ExprKind::Mul; id = expr(id).a) take(expr(id).b);
  take(id);
  std::sort(product.factors.begin(), product.factors.end());
  return product;
}

ExprId SymbolTable::build(const Product& product) {
  if (product.factors.empty()) return integer(product.coefficient);
  ExprId all = product.factors[0];
  for (size_t i = 1; i < product.factors.size(); ++i) {
    const ExprId next = product.factors[i];
    all = intern_int(ExprKind::Mul, all, next, wrapping_mul(hint(all), hint(next)));
  }
  Linear scaled;
  add_terms(all, product.coefficient, scaled);
  return build(scaled);
}

ExprId SymbolTable::add(ExprId a, ExprId b) {
  Linear sum;
  add_terms(a, 1, sum);
  add_terms(b, 1, sum);
  return build(std::move(sum));
}

ExprId SymbolTable::sub(ExprId a, ExprId b) { return build(difference(a, b)); }

ExprId SymbolTable::neg(ExprId a) { return sub(integer(0), a); }

ExprId SymbolTable::mul(ExprId a, ExprId b) {
  if (is_constant(a)) std::swap(a, b);
  if (auto scale = constant(b)) {
    Linear scaled;
    add_terms(a, *scale, scaled);
    return build(std::move(scaled));
  }
  Product product = factors(a);
  const Product other = factors(b);
  product.coefficient = wrapping_mul(product.coefficient, other.coefficient);
  product.factors.append(other.factors.begin(), other.factors.end());
  std::sort(product.factors.begin(), product.factors.end());
  return build(product);
}

/// a / b if every term of `a` contains all factors of `b`, so that nothing is rounded.
std::optional<ExprId> SymbolTable::exact_quotient(ExprId a, ExprId b) {
  const Product divisor = factors(b);
  if (divisor.coefficient == 0) return std::nullopt;
  Linear dividend, result;
  add_terms(a, 1, dividend);
  if (dividend.constant != 0) {
    if (!divisor.factors.empty() || *remainder(dividend.constant, divisor.coefficient) != 0) return std::nullopt;
    result.constant = *quotient(dividend.constant, divisor.coefficient);
  }
  for (const auto& [id, coefficient] : dividend.terms) {
    if (*remainder(coefficient, divisor.coefficient) != 0) return std::nullopt;
    const Product term = factors(id);
    Product rest;
    rest.coefficient = term.coefficient;
    if (!std::includes(term.factors.begin(), term.factors.end(), divisor.factors.begin(), divisor.factors.end())) {
      return std::nullopt;
    }
    std::set_difference(term.factors.begin(), term.factors.end(), divisor.factors.begin(), divisor.factors.end(),
                        std::back_inserter(rest.factors));
    add_terms(build(rest), *quotient(coefficient, divisor.coefficient), result);
  }
  return build(std::move(result));
}

ExprId SymbolTable::div(ExprId a, ExprId b) {
  const auto value = quotient(hint(a), hint(b));
  if (!value) throw std::domain_error("division by zero while tracing: " + str(a) + " // " + str(b));
  if (is_constant(a) && is_constant(b)) return integer(*value);
  if (auto exact = exact_quotient(a, b)) return *exact;
  return intern_int(ExprKind::Div, a, b, *value);
}

ExprId SymbolTable::mod(ExprId a, ExprId b) {
  const auto value = remainder(hint(a), hint(b));
  if (!value) throw std::domain_error("division by zero while tracing: " + str(a) + " % " + str(b));
  if (is_constant(a) && is_constant(b)) return integer(*value);
  if (exact_quotient(a, b)) return integer(0);
  return intern_int(ExprKind::Mod, a, b, *value);
}

ExprId SymbolTable::min(ExprId a, ExprId b) {
  if (known(Cmp::LessEqual, a, b) == true) return a;
  if (known(Cmp::LessEqual, b, a) == true) return b;
  if (b < a) std::swap(a, b);
  return intern_int(ExprKind::Min, a, b, std::min(hint(a), hint(b)));
}

ExprId SymbolTable::max(ExprId a, ExprId b) {
  if (known(Cmp::LessEqual, a, b) == true) return b;
  if (known(Cmp::LessEqual, b, a) == true) return a;
  if (b < a) std::swap(a, b);
  return intern_int(ExprKind::Max, a, b, std::max(hint(a), hint(b)));
}

// -- floats --------------------------------------------------------------------------------------------------------

ExprId SymbolTable::floor(ExprId value) {
  if (type(value) != ExprType::Float) return value;
  const auto rounded = whole(std::floor(real_hint(value)));
  if (!rounded) throw std::domain_error("floor of a float that no integer holds: " + str(value));
  if (is_constant(value)) return integer(*rounded);
  return intern(ExprKind::Floor, value, {}, of_int(0), of_int(*rounded), false);
}

ExprId SymbolTable::ceil(ExprId value) {
  if (type(value) != ExprType::Float) return value;
  const auto rounded = whole(std::ceil(real_hint(value)));
  if (!rounded) throw std::domain_error("ceil of a float that no integer holds: " + str(value));
  if (is_constant(value)) return integer(*rounded);
  return intern(ExprKind::Ceil, value, {}, of_int(0), of_int(*rounded), false);
}

ExprId SymbolTable::to_real(ExprId a) {
  if (type(a) == ExprType::Float) return a;
  const double value = static_cast<double>(hint(a));
  if (is_constant(a)) return real(value);
  return intern(ExprKind::FromInt, a, {}, of_int(0), of_real(value), false);
}

// Floats are never reassociated: the program's own rounding, operation by operation, is part of the result.
ExprId SymbolTable::real_op(ExprKind kind, ExprId a, ExprId b) {
  a = to_real(a);
  b = to_real(b);
  const double x = real_hint(a), y = real_hint(b);
  double value = 0;
  if (kind == ExprKind::FAdd)
    value = x + y;
  else if (kind == ExprKind::FSub)
    value = x - y;
  else if (kind == ExprKind::FMul)
    value = x * y;
  else if (kind == ExprKind::FDiv)
    value = x / y;
  else if (kind == ExprKind::FPow)
    value = std::pow(x, y);
  else
    throw std::logic_error("real_op: kind " + std::to_string(static_cast<int>(kind)) + " is no operation of two floats");
  if (is_constant(a) && is_constant(b)) return real(value);
  return intern(kind, a, b, of_int(0), of_real(value), false);
}

ExprId SymbolTable::real_neg(ExprId a) {
  a = to_real(a);
  if (is_constant(a)) return real(-real_hint(a));
  return intern(ExprKind::FNeg, a, {}, of_int(0), of_real(-real_hint(a)), false);
}

}  // namespace hindcast::capture
