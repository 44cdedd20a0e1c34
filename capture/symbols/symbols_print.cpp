// Expressions and relations as text.

#include "hindcast/symbols.h"

#include <charconv>
#include <stdexcept>

namespace hindcast::capture {
namespace {

// How tightly an operator binds; an operand that binds less gets parentheses.
enum Binding { kOr, kAnd, kCompare, kSum, kProduct, kUnary, kPower, kAtom };

std::string real_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

const char* word(Cmp cmp, bool outcome) {
  switch (cmp) {
    case Cmp::Equal:
      return outcome ? " == " : " != ";
    case Cmp::Less:
      return outcome ? " < " : " >= ";
    case Cmp::LessEqual:
      return outcome ? " <= " : " > ";
    case Cmp::SameBits:
      return outcome ? " is " : " is not ";
  }
  return " ? ";
}

// The same comparison with its sides exchanged.
const char* mirrored(Cmp cmp, bool outcome) {
  switch (cmp) {
    case Cmp::Less:
      return outcome ? " > " : " <= ";
    case Cmp::LessEqual:
      return outcome ? " >= " : " < ";
    case Cmp::Equal:
    case Cmp::SameBits:
      break;
  }
  return word(cmp, outcome);
}

}  // namespace

std::string SymbolTable::text(ExprId id, int binding) const {
  const Expr& e = expr(id);
  const auto wrap = [&](int own, std::string inner) { return own < binding ? "(" + inner + ")" : inner; };
  const auto infix = [&](int own, const char* sign) { return wrap(own, text(e.a, own) + sign + text(e.b, own + 1)); };
  const auto call = [&](const char* name) {
    const bool two = e.kind == ExprKind::Min || e.kind == ExprKind::Max;
    return name + ("(" + text(e.a, kOr)) + (two ? ", " + text(e.b, kOr) : "") + ")";
  };
  switch (e.kind) {
    case ExprKind::IntConst:
      return wrap(e.payload.i < 0 ? kUnary : kAtom, std::to_string(e.payload.i));
    case ExprKind::FloatConst:
      return wrap(e.payload.f < 0 ? kUnary : kAtom, real_text(e.payload.f));
    case ExprKind::IntSymbol:
      if (const size_t unbacked = bound_by(id); unbacked != 0) return "u" + std::to_string(unbacked - 1);
      return "s" + std::to_string(e.payload.i);
    case ExprKind::FloatSymbol:
      return "f" + std::to_string(e.payload.i);
    case ExprKind::Add: {
      // "+ -2*s1" reads as "- 2*s1"
      std::string right = text(e.b, kProduct);
      if (right[0] == '-') return wrap(kSum, text(e.a, kSum) + " - " + right.substr(1));
      return wrap(kSum, text(e.a, kSum) + " + " + right);
    }
    case ExprKind::Mul: {
      const auto factor = [&](ExprId side) { return text(side, expr(side).kind == ExprKind::Mul ? kProduct : kUnary); };
      return wrap(kProduct, (constant(e.a) == -1 ? "-" : factor(e.a) + "*") + factor(e.b));
    }
    case ExprKind::Div:
      return infix(kProduct, "//");
    case ExprKind::Mod:
      return infix(kProduct, " % ");
    case ExprKind::Min:
      return call("min");
    case ExprKind::Max:
      return call("max");
    case ExprKind::Floor:
      return call("floor");
    case ExprKind::Ceil:
      return call("ceil");
    case ExprKind::FromInt:
      return call("float");
    case ExprKind::FAdd:
      return infix(kSum, " + ");
    case ExprKind::FSub:
      return infix(kSum, " - ");
    case ExprKind::FMul:
      return infix(kProduct, "*");
    case ExprKind::FDiv:
      return infix(kProduct, "/");
    case ExprKind::FNeg:
      return wrap(kUnary, "-" + text(e.a, kUnary));
    case ExprKind::FPow:
      return wrap(kPower, text(e.a, kAtom) + "**" + text(e.b, kAtom));
    case ExprKind::Equal:
      return infix(kCompare, " == ");
    case ExprKind::Less:
      return infix(kCompare, " < ");
    case ExprKind::LessEqual:
      return infix(kCompare, " <= ");
    case ExprKind::And:
      return infix(kAnd, " and ");
    case ExprKind::Or:
      return infix(kOr, " or ");
    case ExprKind::Not:
      return wrap(kCompare, "not " + text(e.a, kAtom));
  }
  throw std::logic_error("an expression of unknown kind " + std::to_string(static_cast<int>(e.kind)));
}

std::string SymbolTable::str(ExprId id) const { return text(id, kOr); }

std::string SymbolTable::describe(const Relation& relation) const {
  const auto& [lhs, cmp, rhs, outcome] = relation;
  if (is_constant(lhs)) return text(rhs, kSum) + mirrored(cmp, outcome) + text(lhs, kSum);
  return text(lhs, kSum) + word(cmp, outcome) + text(rhs, kSum);
}

}  // namespace hindcast::capture
