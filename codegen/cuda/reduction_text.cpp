#include "codegen/cuda/reduction_text.h"

#include "base/check.h"
#include "base/format.h"
#include "codegen/kernel/body_text.h"

namespace hindcast::codegen::cuda {

using base::format;
using Kind = Reduction::Kind;

namespace {

bool is_pair(Kind kind) { return is_of_moments(kind) || is_of_powers(kind); }

}  // namespace

ReductionText::ReductionText(const Body& body) : body_(body), type_(type_name(body.compute)) {}

bool ReductionText::is_of_pair(size_t op) const { return is_pair(body_.ops[op].reduction.kind); }

std::string ReductionText::accumulator(size_t op) const { return format("{}{}", is_of_pair(op) ? "m" : "v", op); }

std::string ReductionText::type_of_number(size_t op) const { return type_of_number(body_.ops[op].reduction.kind); }

std::string ReductionText::type_of_number(Kind kind) const {
  return is_pair(kind) ? format("{}<{}>", is_of_moments(kind) ? "MomentsFrom" : "PowersFrom", type_) : type_;
}

std::string ReductionText::neutral(Kind kind) const {
  if (kind == Kind::Max) return format("-infinity<{}>()", type_);
  return kind == Kind::Min ? format("infinity<{}>()", type_) : format("{}(0)", type_);
}

std::string ReductionText::combine(Kind kind) const {
  if (is_pair(kind)) return format("Merges<{}>()", type_of_number(kind));
  return format("{}<{}>()", kind == Kind::Sum ? "Adds" : kind == Kind::Max ? "Larger" : "Smaller", type_);
}

std::string ReductionText::combined(Kind kind, const std::string& a, const std::string& b) const {
  HC_CHECK(!is_pair(kind), "half of a pair of numbers that were reduced");
  if (kind == Kind::Sum) return format("{} + {}", a, b);
  return format("{}<{}>({}, {})", kind == Kind::Max ? "maximum" : "minimum", type_, a, b);
}

std::string ReductionText::begin(size_t op) const {
  if (!is_leader(op)) return "";
  const Kind kind = body_.ops[op].reduction.kind;
  const std::string none = is_of_moments(kind)  ? format("{{0, {}(0), {}(0), {}(0)}}", type_, type_, type_)
                           : is_of_powers(kind) ? format("{{-infinity<{}>(), -infinity<{}>(), {}(0), {}(0)}}", type_, type_, type_, type_)
                                                : neutral(kind);
  return format("{} {} = {};", type_of_number(op), accumulator(op), none);
}

std::string ReductionText::begin_vector(size_t op) const {
  if (!is_leader(op)) return "";
  if (is_of_pair(op)) return format("{} n{}[kVector];", type_, op);
  return format("{} part{} = {};", type_, op, neutral(body_.ops[op].reduction.kind));
}

std::string ReductionText::element(size_t op) const {
  if (!is_leader(op)) return "";
  const std::string value = name_of(body_.ops[op].args[0]);
  if (is_of_pair(op)) return format("n{}[j] = {};", op, value);
  const std::string part = format("part{}", op);
  return format("{} = {};", part, combined(body_.ops[op].reduction.kind, part, value));
}

// Reduces each vector first, for accuracy: a sum in one variable loses a bit each time its length doubles.
std::string ReductionText::end_vector(size_t op) const {
  if (!is_leader(op)) return "";
  const Kind kind = body_.ops[op].reduction.kind;
  if (!is_of_pair(op)) return format("v{} = {};", op, combined(kind, format("v{}", op), format("part{}", op)));
  if (is_of_powers(kind)) return format("m{} = with_powers(m{}, n{});", op, op, op);
  return format("m{} = merge<{}>(m{}, moments_of_registers<kVector>(n{}));", op, type_, op, op);
}

std::string ReductionText::end(size_t op) const {
  const std::string all =
      is_leader(op) ? format("{} = over_row({}, {});", accumulator(op), accumulator(op), combine(body_.ops[op].reduction.kind)) : "";
  const std::string numbers = end_numbers(op);
  return all + (all.empty() || numbers.empty() ? "" : " ") + numbers;
}

std::string ReductionText::end_numbers(size_t op) const {
  if (!is_of_pair(op)) return "";
  const std::string pair = accumulator(leader_of_pair(body_, op));
  const auto number = [&](const std::string& value) { return format("const {} v{} = {};", type_, op, value); };
  switch (body_.ops[op].reduction.kind) {
    case Kind::Mean:
      return number(pair + ".from + " + pair + ".mean");
    case Kind::M2:
      return number(pair + ".m2");
    case Kind::Largest:
      return number(pair + ".largest");
    default:
      return number("sum_of_powers(" + pair + ")");
  }
}

std::string ReductionText::add_number(size_t op) const {
  if (!is_leader(op)) return "";
  const std::string value = name_of(body_.ops[op].args[0]);
  const Kind kind = body_.ops[op].reduction.kind;
  HC_CHECK(!is_of_powers(kind), "powers of segments");
  if (!is_of_pair(op)) return format("v{} = {};", op, combined(kind, format("v{}", op), value));
  return format("m{} = merge<{}>(m{}, {{1, {}, {}(0), {}(0)}});", op, type_, op, value, type_, type_);
}

}  // namespace hindcast::codegen::cuda
