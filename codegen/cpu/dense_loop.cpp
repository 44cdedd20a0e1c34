#include "codegen/cpu/dense_loop.h"

#include "codegen/cpu/cost_model.h"
#include "codegen/kernel/body_text.h"
#include "base/format.h"

namespace hindcast::codegen::cpu {

using base::format;

std::string load_lines(const Body& body, const std::vector<bool>& loads, std::string_view place, std::string_view indent) {
  std::string lines;
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (loads[i] && body.loads[i].pattern == AccessPattern::Dense)
      lines += format("{}{}\n", indent, load_from(body, i, format("p{}[{}]", i, place)));
  }
  return lines;
}

std::string op_lines(const Body& body, const std::vector<bool>& ops, bool near, std::string_view indent) {
  std::string lines;
  for (size_t i = 0; i < body.ops.size(); ++i) {
    if (ops[i]) lines += format("{}const {} {};\n", indent, type_name(body.compute), assignment(body, i, cost_model(), near));
  }
  return lines;
}

std::string dense_loop(const Body& body, std::string_view begin, std::string_view end, bool near, bool leaves, const std::string& look) {
  std::string text = "#pragma clang loop vectorize(assume_safety)\n";
  text += format("  for (long i = {}; i < {}; ++i) {{\n", begin, end) + look;
  text += load_lines(body, std::vector<bool>(body.loads.size(), true), "i", "    ");
  text += op_lines(body, std::vector<bool>(body.ops.size(), true), near, "    ");
  size_t leaf = 0;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    text += store_lines(body, i, leaf, leaves, "    ");
    leaf += body.stores[i].leaves;
  }
  return text + "  }\n";
}

}  // namespace hindcast::codegen::cpu
