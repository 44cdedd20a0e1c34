#include "codegen/cpu/reduction_text.h"

#include "base/check.h"
#include "base/format.h"
#include "codegen/cpu/source.h"
#include "codegen/kernel/body_text.h"

namespace hindcast::codegen::cpu {

using base::format;
using Kind = Reduction::Kind;

ReductionText::ReductionText(const Body& body) : body_(body), type_(type_name(body.compute)) {
  if (c10::isComplexType(body.compute)) parts_ = {".real", ".imag"};
}

bool ReductionText::is_moments(size_t op) const { return is_of_moments(body_.ops[op].reduction.kind); }

std::string ReductionText::begin(size_t op) const {
  switch (body_.ops[op].reduction.kind) {
    case Kind::Sum:
      return format("RunningSum<{}> running{} = {{0, 0}};", type_, op);
    case Kind::Max:
      return format("{} v{} = -infinity<{}>();", type_, op, type_);
    case Kind::Min:
      return format("{} v{} = infinity<{}>();", type_, op, type_);
    case Kind::Mean:
    case Kind::M2:
      return leader_of_pair(body_, op) == op ? format("Moments<{}> m{} = {{0, 0, 0}};", type_, op) : "";
    case Kind::Largest:
    case Kind::Powers:
      break;  // not used on the CPU: rows are in a cache, so a second pass costs less than more exp
  }
  return "";
}

std::string ReductionText::begin_block(size_t op) const {
  if (body_.ops[op].reduction.kind == Kind::Sum) return format("{} part{} = 0;", type_, op);
  return leader_of_pair(body_, op) == op ? format("{} block{}[{}];", type_, op, kBlockLength) : "";
}

std::string ReductionText::element(size_t op) const {
  const std::string value = name_of(body_.ops[op].args[0]);
  if (body_.ops[op].reduction.kind != Kind::Sum)
    return leader_of_pair(body_, op) == op ? format("        block{}[i - begin] = {};\n", op, value) : "";
  std::string lines = "        {\n#pragma clang fp reassociate(on)\n";
  for (const std::string_view part : parts_) lines += format("        part{}{} += {}{};\n", op, part, value, part);
  return lines + "        }\n";
}

std::string ReductionText::end_block(size_t op) const {
  switch (body_.ops[op].reduction.kind) {
    case Kind::Sum:
      return format("add_to(running{}, part{});", op, op);
    case Kind::Max:
      return format("v{} = maximum<{}>(v{}, max_of<{}>(block{}, end - begin));", op, type_, op, type_, op);
    case Kind::Min:
      return format("v{} = minimum<{}>(v{}, min_of<{}>(block{}, end - begin));", op, type_, op, type_, op);
    case Kind::Mean:
    case Kind::M2:
      return leader_of_pair(body_, op) == op
                 ? format("m{} = merge<{}>(m{}, moments_of<{}>(block{}, end - begin));", op, type_, op, type_, op)
                 : "";
    case Kind::Largest:
    case Kind::Powers:
      break;
  }
  return "";
}

std::string ReductionText::end(size_t op) const {
  const Kind kind = body_.ops[op].reduction.kind;
  if (kind == Kind::Sum) return format("const {} v{} = total_of(running{});", type_, op, op);
  if (!is_moments(op)) return "";
  return format("const {} v{} = m{}.{};", type_, op, leader_of_pair(body_, op), kind == Kind::Mean ? "mean" : "m2");
}

std::string ReductionText::add_number(size_t op) const {
  const std::string value = name_of(body_.ops[op].args[0]);
  const Kind kind = body_.ops[op].reduction.kind;
  if (kind == Kind::Sum) return format("add_to(running{}, {});", op, value);
  if (!is_moments(op)) return format("v{} = {};", op, combined(kind, format("v{}", op), value));
  return leader_of_pair(body_, op) == op ? format("m{} = merge<{}>(m{}, {{1, {}, 0}});", op, type_, op, value) : "";
}

std::string ReductionText::combined(Kind kind, const std::string& a, const std::string& b) const {
  HC_CHECK(!is_of_moments(kind), "a mean of numbers that were reduced");
  return format("{}<{}>({}, {})", kind == Kind::Sum ? "add" : kind == Kind::Max ? "maximum" : "minimum", type_, a, b);
}

// `share` in the text: one divided by the number of rows so far.
std::string ReductionText::column(size_t store) const {
  const BodyStore& to = body_.stores[store];
  const std::string value = name_of(to.value);
  if (!is_of_moments(to.over_rows)) return format("        r{}[i] = {};\n", store, combined(to.over_rows, format("r{}[i]", store), value));
  if (to.over_rows == Kind::M2) return "";  // written with its mean
  std::string lines = format("        const {} d{} = {} - r{}[i];\n", type_, store, value, store);
  lines += format("        r{}[i] += d{} * share;\n", store, store);
  if (const auto m2 = m2_beside(body_, store)) lines += format("        r{}[i] += d{} * ({} - r{}[i]);\n", *m2, store, value, store);
  return lines;
}

}  // namespace hindcast::codegen::cpu
