#include "capture/ops/op_facts.h"

#include "base/fork.h"

#include <array>
#include <string>
#include <unordered_map>

namespace hindcast::capture {
namespace {

constexpr auto kRows = [] {
  using enum OpFacts::Flags;
#define HC_OP(name, kind, view, images, facts) OpFacts{name, OpKind::kind, ViewKind::view, images, static_cast<uint16_t>(facts)},
  return std::to_array<OpFacts>({
#include "capture/ops/aten_ops.def"
  });
}();

const OpFacts& find(std::string_view name, const std::string& overload) {
  using Rows = std::unordered_map<std::string_view, const OpFacts*>;
  static const Rows rows = base::first_use([] {
    Rows by_name;
    for (const OpFacts& row : kRows) by_name.emplace(row.name, &row);
    return by_name;
  });
  static constexpr OpFacts kNothing;
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) return kNothing;
  name.remove_prefix(kNamespace.size());
  if (!overload.empty()) {
    if (const auto found = rows.find(std::string(name) + "." + overload); found != rows.end()) return *found->second;
  }
  const auto found = rows.find(name);
  return found == rows.end() ? kNothing : *found->second;
}

}  // namespace

const OpFacts& facts_of(const c10::OperatorName& op) { return find(op.name, op.overload_name); }

const OpFacts& facts_of_functional(const c10::OperatorName& op) {
  std::string_view name = op.name;
  while (name.ends_with('_')) name.remove_suffix(1);
  return find(name, op.overload_name);
}

std::span<const OpFacts> known_ops() { return kRows; }

}  // namespace hindcast::capture
