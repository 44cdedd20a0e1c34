#include "codegen/cuda/reduction_text.h"

#include "base/check.h"
#include "base/format.h"
#include "codegen/kernel/body_text.h"

namespace hindcast::codegen::cuda {

using base::format;
using Kind = Reduction::Kind;

ReductionText::ReductionText(const Body& body) : body_(body), type_(type_name(body.compute)) {}

bool ReductionText::is_moments(size_t op) const { return is_of_moments(body_.ops[op].reduction.kind); }

std::string ReductionText::accumulator(size_t op) const { return format("{}{}", is_moments(op) ? "m" : "v", op); }

std::string ReductionText::type_of_number(size_t op) const { return is_moments(op) ? format("MomentsFrom<{}>", type_) : type_; }

std::string ReductionText::neutral(Kind kind) const {
  if (kind == Kind::Max) return format("-infinity<{}>()", type_);
  return kind == Kind::Min ? format("infinity<{}>()", type_) : format("{}(0)", type_);
}

std::string ReductionText::combine(Kind kind) const {
  if (is_of_moments(kind)) return format("Merges<{}>()", type_);
  return format("{}<{}>()", kind == Kind::Sum ? "Adds" : kind == Kind::Max ? "Larger" : "Smaller", type_);
}

std::string ReductionText::combined(Kind kind, const std::string& a, const std::string& b) const {
  HC_CHECK(!is_of_moments(kind), "a mean of numbers that were reduced");
  if (kind == Kind::Sum) return format("{} + {}", a, b);
  return format("{}<{}>({}, {})", kind == Kind::Max ? "maximum" : "minimum", type_, a, b);
}

std::string ReductionText::begin(size_t op) const {
  if (!is_moments(op)) return format("{} v{} = {};", type_, op, neutral(body_.ops[op].reduction.kind));
  return leader_of_moments(body_, op) == op ? format("MomentsFrom<{}> m{} = {{0, {}(0), {}(0), {}(0)}};", type_, op, type_, type_, type_)
                                            : "";
}

std::string ReductionText::begin_vector(size_t op) const {
  if (is_moments(op)) return leader_of_moments(body_, op) == op ? format("{} n{}[kVector];", type_, op) : "";
  return format("{} part{} = {};", type_, op, neutral(body_.ops[op].reduction.kind));
}

std::string ReductionText::element(size_t op) const {
  const std::string value = name_of(body_.ops[op].args[0]);
  if (is_moments(op)) return leader_of_moments(body_, op) == op ? format("n{}[j] = {};", op, value) : "";
  const std::string part = format("part{}", op);
  return format("{} = {};", part, combined(body_.ops[op].reduction.kind, part, value));
}

// A vector's part first: a sum in one variable loses a bit each time its length doubles.
std::string ReductionText::end_vector(size_t op) const {
  if (is_moments(op)) {
    return leader_of_moments(body_, op) == op ? format("m{} = merge<{}>(m{}, moments_of_registers<kVector>(n{}));", op, type_, op, op) : "";
  }
  return format("v{} = {};", op, combined(body_.ops[op].reduction.kind, format("v{}", op), format("part{}", op)));
}

std::string ReductionText::end(size_t op) const {
  const Kind kind = body_.ops[op].reduction.kind;
  if (!is_moments(op)) return format("v{} = over_row(v{}, {});", op, op, combine(kind));
  return (leader_of_moments(body_, op) == op ? format("m{} = over_row(m{}, {}); ", op, op, combine(kind)) : "") + end_numbers(op);
}

std::string ReductionText::end_numbers(size_t op) const {
  if (!is_moments(op)) return "";
  return body_.ops[op].reduction.kind == Kind::Mean
             ? format("const {} v{} = m{}.from + m{}.mean;", type_, op, leader_of_moments(body_, op), leader_of_moments(body_, op))
             : format("const {} v{} = m{}.m2;", type_, op, leader_of_moments(body_, op));
}

std::string ReductionText::add_number(size_t op) const {
  const std::string value = name_of(body_.ops[op].args[0]);
  if (!is_moments(op)) return format("v{} = {};", op, combined(body_.ops[op].reduction.kind, format("v{}", op), value));
  return leader_of_moments(body_, op) == op ? format("m{} = merge<{}>(m{}, {{1, {}, {}(0), {}(0)}});", op, type_, op, value, type_, type_)
                                            : "";
}

}  // namespace hindcast::codegen::cuda
