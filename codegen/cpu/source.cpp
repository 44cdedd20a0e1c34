#include "codegen/cpu/source.h"

#include "codegen/cpu/row_source.h"
#include "codegen/cpu/text.h"
#include "engine/base/format.h"

namespace hindcast::codegen {
namespace {

using base::format;

std::string element_lines(const Body& body, bool near = false) {
  std::string lines;
  for (size_t i = 0; i < body.ops.size(); ++i) lines += format("    const {} {};\n", type_name(body.compute), assignment(body, i, near));
  return lines;
}

// Where a result is written to the memory of an operand, each element is read before.
std::string dense_loop(const Body& body, std::string_view begin, std::string_view end, bool near) {
  std::string text = "#pragma clang loop vectorize(assume_safety)\n";
  text += format("  for (long i = {}; i < {}; ++i) {{\n", begin, end);
  for (size_t i = 0; i < body.loads.size(); ++i) {
    if (body.loads[i].walk == Walk::Dense) text += format("    {}\n", load_from(body, i, format("p{}[i]", i)));
  }
  text += element_lines(body, near);
  for (size_t i = 0; i < body.stores.size(); ++i) text += format("    r{}[i] = {};\n", i, converted(body, body.stores[i]));
  return text + "  }\n";
}

std::string dense_source(const Body& body) {
  const size_t loads = body.loads.size();
  std::string text = "extern \"C\" void dense(char* const* pointers, const double* scalars, long count) {\n" + scalar_lines(body);
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view type = type_name(body.loads[i].type);
    if (body.loads[i].walk == Walk::Still) {
      text += format("  {}\n", load_from(body, i, format("*(const {}*)pointers[{}]", type, i)));
    } else {
      text += format("  const {}* p{} = (const {}*)pointers[{}];\n", type, i, type, i);
    }
  }
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const std::string_view type = type_name(body.stores[i].type);
    text += format("  {}* r{} = ({}*)pointers[{}];\n", type, i, type, loads + i);
  }
  const std::vector<size_t> angles = angles_of(body);
  if (angles.empty()) return text + dense_loop(body, "0", "count", false) + "}\n\n";
  text += block_lines("  ", "count") + "  int far = 0;\n";
  for (const size_t load : angles) {
    if (body.loads[load].walk == Walk::Still) text += "  " + far_line(body, load, format("x{}", load));
  }
  text += "  for (long i = begin; i < end; ++i) {\n";
  for (const size_t load : angles) {
    if (body.loads[load].walk == Walk::Dense) text += "    " + far_line(body, load, format("p{}[i]", load));
  }
  text += "  }\n  if (!far) {\n" + dense_loop(body, "begin", "end", true) + "  } else {\n" + dense_loop(body, "begin", "end", false);
  return text + "  }\n  }\n}\n\n";
}

std::string strided_source(const Body& body) {
  const size_t loads = body.loads.size();
  std::string text = "extern \"C\" void strided(char* const* pointers, const double* scalars, long count, const long* strides) {\n" +
                     scalar_lines(body) + "  for (long i = 0; i < count; ++i) {\n";
  for (size_t i = 0; i < loads; ++i) {
    const auto place = format("*(const {}*)(pointers[{}] + i * strides[{}])", type_name(body.loads[i].type), i, i);
    text += format("    {}\n", load_from(body, i, place));
  }
  text += element_lines(body);
  for (size_t i = 0; i < body.stores.size(); ++i) {
    text += format("    *({}*)(pointers[{}] + i * strides[{}]) = {};\n", type_name(body.stores[i].type), loads + i, loads + i,
                   converted(body, body.stores[i]));
  }
  return text + "  }\n}\n";
}

}  // namespace

std::string cpu_source(const Body& body) {
  const std::string head = "#include \"codegen/device/ops.h\"\nusing namespace hindcast::device;\n\n";
  return head + (body.by_rows ? rows_source(body) : dense_source(body) + strided_source(body));
}

}  // namespace hindcast::codegen
