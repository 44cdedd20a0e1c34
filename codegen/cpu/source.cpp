#include "codegen/cpu/source.h"

#include "codegen/cpu/row_source.h"
#include "codegen/kernel/body_text.h"
#include "codegen/kernel/leaf_requests.h"
#include "base/format.h"

namespace hindcast::codegen::cpu {
namespace {

using base::format;

std::string element_lines(const Body& body, bool near = false) {
  std::string lines;
  for (size_t i = 0; i < body.ops.size(); ++i) lines += format("    const {} {};\n", type_name(body.compute), assignment(body, i, near));
  return lines;
}

// Where a result is written to the memory of an operand, each element is read before.
std::string dense_loop(const Body& body, std::string_view begin, std::string_view end, bool near, bool leaves) {
  std::string text = "#pragma clang loop vectorize(assume_safety)\n";
  text += format("  for (long i = {}; i < {}; ++i) {{\n", begin, end);
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (body.loads[i].walk == Walk::Dense) text += format("    {}\n", load_from(body, i, format("p{}[i]", i)));
  }
  text += element_lines(body, near);
  size_t leaf = 0;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    text += store_lines(body, i, leaf, leaves, "    ");
    leaf += body.stores[i].leaves;
  }
  return text + "  }\n";
}

// A block, where there is no tensor, is counted from `begin` on.
std::string pointer_line(const std::string& name, std::string_view type, size_t pointer, size_t loads, bool leaves) {
  return format("  {}* {} = ({}*)pointers[{}]{};\n", type, name, type, pointer,
                leaves ? format(" - begin * is_block[{}]", pointer - loads) : "");
}

std::string result_pointers(const Body& body, bool leaves) {
  const size_t loads = body.loads.size();
  std::string text;
  for (size_t i = 0; i < body.stores.size(); ++i)
    text += pointer_line(format("r{}", i), type_name(body.stores[i].type), loads + i, loads, leaves);
  if (!leaves) return text;
  size_t pointer = loads + body.stores.size(), leaf = 0;
  for (const BodyStore& store : body.stores) {
    for (uint32_t n = 0; n < store.leaves; ++n, ++leaf, pointer += 2) {
      text += pointer_line(format("sum{}", leaf), type_name(store.type), pointer, loads, true);
      text += pointer_line(format("term{}", leaf), type_name(store.type), pointer + 1, loads, true);
    }
  }
  return text;
}

std::string dense_source(const Body& body, bool leaves) {
  const size_t loads = body.loads.size();
  std::string text = format("extern \"C\" void {}(char* const* pointers, const double* scalars, long count{}) {{\n",
                            leaves ? "leaves" : "dense", leaves ? ", const long* is_block" : "") +
                     scalar_lines(body);
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view type = type_name(body.loads[i].type);
    if (body.loads[i].walk == Walk::Still) {
      text += format("  {}\n", load_from(body, i, format("*(const {}*)pointers[{}]", type, i)));
    } else {
      text += format("  const {}* p{} = (const {}*)pointers[{}];\n", type, i, type, i);
    }
  }
  const std::vector<size_t> angles = angles_of(body);
  if (!leaves) text += result_pointers(body, false);
  if (angles.empty() && !leaves) return text + dense_loop(body, "0", "count", false, false) + "}\n";
  text += block_lines("  ", "count", kBlockLength);
  if (leaves) text += result_pointers(body, true);
  if (angles.empty()) return text + dense_loop(body, "begin", "end", false, leaves) + "  }\n}\n";
  text += "  int far = 0;\n";
  for (const size_t load : angles) {
    if (body.loads[load].walk == Walk::Still) text += "  " + far_line(body, load, format("x{}", load));
  }
  text += "  for (long i = begin; i < end; ++i) {\n";
  for (const size_t load : angles) {
    if (body.loads[load].walk == Walk::Dense) text += "    " + far_line(body, load, format("p{}[i]", load));
  }
  text += "  }\n  if (!far) {\n" + dense_loop(body, "begin", "end", true, leaves) + "  } else {\n" +
          dense_loop(body, "begin", "end", false, leaves);
  return text + "  }\n  }\n}\n";
}

}  // namespace

std::string source_of(const Body& body) {
  const std::string head = "#include \"codegen/device/ops.h\"\nusing namespace hindcast::device;\n\n";
  if (body.by_rows) return head + rows_source(body);
  return head + dense_source(body, false) + (has_leaves(body) ? "\n" + dense_source(body, true) : "");
}

}  // namespace hindcast::codegen::cpu
