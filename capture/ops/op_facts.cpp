#include "capture/ops/op_facts.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace hindcast::capture {
namespace {

// By name. Constant, so that a thread that still compiles while the process exits finds it.
constexpr auto kRows = [] {
  using enum OpFacts::Flags;
#define HC_OP(name, kind, view, images, facts) OpFacts{name, OpKind::kind, ViewKind::view, images, static_cast<uint16_t>(facts)},
  auto rows = std::to_array<OpFacts>({
#include "capture/ops/aten_ops.def"
  });
  std::sort(rows.begin(), rows.end(), [](const OpFacts& a, const OpFacts& b) { return a.name < b.name; });
  return rows;
}();

const OpFacts* find_row(std::string_view name) {
  const auto row = std::lower_bound(kRows.begin(), kRows.end(), name, [](const OpFacts& a, std::string_view b) { return a.name < b; });
  return row != kRows.end() && row->name == name ? &*row : nullptr;
}

const OpFacts& find(std::string_view name, const std::string& overload) {
  static constexpr OpFacts kNothing;
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) return kNothing;
  name.remove_prefix(kNamespace.size());
  if (!overload.empty()) {
    if (const OpFacts* const row = find_row(std::string(name) + "." + overload)) return *row;
  }
  const OpFacts* const row = find_row(name);
  return row == nullptr ? kNothing : *row;
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
