#include "codegen/cpu/source.h"

#include "base/format.h"
#include "codegen/cpu/dense_loop.h"
#include "codegen/cpu/product_source.h"
#include "codegen/cpu/row_source.h"
#include "codegen/kernel/angles.h"
#include "codegen/kernel/body_text.h"
#include "codegen/kernel/leaf_requests.h"

namespace hindcast::codegen::cpu {
namespace {

using base::format;

// The block length for angles that the kernel computes: short enough that non-temporal stores (kNontemporalAtOnce elements at a time) cover
// several blocks.
constexpr long kAngleBlockLength = 256;

// If the pointer is to a block instead of a tensor, the block's first element is that of index `begin`.
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

// Checks of angles that are the same for all elements.
std::string broadcast_looks(const Body& body, const Angles& angles) {
  std::string lines;
  for (const uint32_t load : angles.loads) {
    if (body.loads[load].pattern == AccessPattern::Broadcast)
      lines += "  " + far_line(body, {Operand::Kind::Load, load}, format("x{}", load));
  }
  for (const std::string& bound : angles.bounds) lines += "  " + far_line(body, bound);
  return lines;
}

std::string dense_looks(const Body& body, const Angles& angles, const std::string& place, const std::string& flag) {
  std::string lines;
  for (const uint32_t load : angles.loads) {
    if (body.loads[load].pattern == AccessPattern::Dense)
      lines += "    " + far_line(body, {Operand::Kind::Load, load}, format("p{}[{}]", load, place), flag);
  }
  if (angles.results.empty()) return lines;
  // The near forms are used here: if one of them gets a far angle and returns a wrong value, that angle itself has been found to be far.
  const Ingredients parts = ingredients_of(body, angles.results, [](size_t) { return true; });
  lines += "    {\n" + load_lines(body, parts.loads, place, "      ") + op_lines(body, parts.ops, true, "      ");
  for (const Operand angle : angles.results) lines += "      " + far_line(body, angle, name_of(angle), flag);
  return lines + "    }\n";
}

std::string looking_loop(const std::string& looks) { return "  for (long i = begin; i < end; ++i) {\n" + looks + "  }\n"; }

std::string blocks_of_loads(const Body& body, const Angles& angles, bool leaves) {
  return "  int far = 0;\n" + broadcast_looks(body, angles) + looking_loop(dense_looks(body, angles, "i", "far")) + "  if (!far) {\n" +
         dense_loop(body, "begin", "end", true, leaves) + "  } else {\n" + dense_loop(body, "begin", "end", false, leaves) + "  }\n";
}

// Computed angles depend on more memory than loaded ones. So the loop over one block also checks the next block, whose memory is then read
// while this block is computed. A block is checked before any of it is written.
std::string blocks_of_results(const Body& body, const Angles& angles, bool leaves) {
  std::string text = "  if (ahead == 0) {\n  far = still_far;\n" + looking_loop(dense_looks(body, angles, "i", "far")) + "  }\n";
  text += format("  ahead = !far && end + {} <= count ? {} : 0;\n  int next = 0;\n  if (!far) {{\n", kAngleBlockLength, kAngleBlockLength);
  text += dense_loop(body, "begin", "end", true, leaves, dense_looks(body, angles, "i + ahead", "next")) + "  } else {\n";
  return text + dense_loop(body, "begin", "end", false, leaves) + "  }\n  far = next;\n";
}

std::string dense_source(const Body& body, bool leaves) {
  const size_t loads = body.loads.size();
  std::string text = format("extern \"C\" void {}(char* const* pointers, const double* scalars, long count{}) {{\n",
                            leaves ? "leaves" : "dense", leaves ? ", const long* is_block" : "") +
                     scalar_lines(body);
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view type = type_name(body.loads[i].type);
    if (body.loads[i].pattern == AccessPattern::Broadcast) {
      text += format("  {}\n", load_from(body, i, format("*(const {}*)pointers[{}]", type, i)));
    } else {
      text += format("  const {}* p{} = (const {}*)pointers[{}];\n", type, i, type, i);
    }
  }
  if (body.product) {
    const std::string_view type = type_name(body.product->type);
    text += format("  const {}* product = (const {}*)pointers[{}];\n", type, type, loads + body.stores.size());
    return text + result_pointers(body, false) + dense_loop(body, "0", "count", false, false) + "}\n";
  }
  const Angles angles = angles_of(body);
  if (!leaves) text += result_pointers(body, false);
  if (angles.empty() && !leaves) return text + dense_loop(body, "0", "count", false, false) + "}\n";
  const bool looks_ahead = !angles.results.empty();
  if (looks_ahead) text += "  int far = 0;\n" + broadcast_looks(body, angles) + "  const int still_far = far;\n  long ahead = 0;\n";
  text += block_lines("  ", "count", looks_ahead ? kAngleBlockLength : kBlockLength);
  if (leaves) text += result_pointers(body, true);
  if (angles.empty()) return text + dense_loop(body, "begin", "end", false, leaves) + "  }\n}\n";
  return text + (looks_ahead ? blocks_of_results(body, angles, leaves) : blocks_of_loads(body, angles, leaves)) + "  }\n}\n";
}

}  // namespace

std::string source_of(const Body& body) {
  const std::string head = "#include \"codegen/device/ops.h\"\nusing namespace hindcast::device;\n\n";
  if (body.by_rows) return head + rows_source(body);
  if (body.product) return product_head() + head + dense_source(body, false) + "\n" + product_source(body);
  return head + dense_source(body, false) + (has_leaves(body) ? "\n" + dense_source(body, true) : "");
}

}  // namespace hindcast::codegen::cpu
