#include "codegen/cpu/product_source.h"

#include "base/format.h"
#include "codegen/cpu/dense_loop.h"
#include "codegen/kernel/body_text.h"

namespace hindcast::codegen::cpu {
namespace {

using base::format;

// The pointers for one row of a block.
std::string row_pointers(const Body& body) {
  const size_t loads = body.loads.size();
  std::string text;
  const auto place = [](size_t pointer) { return format("pointers[{}] + row * row_strides[{}]", pointer, pointer); };
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view type = type_name(body.loads[i].type);
    if (body.loads[i].pattern == AccessPattern::Broadcast) {
      text += format("    {}\n", load_from(body, i, format("*(const {}*)({})", type, place(i))));
    } else {
      text += format("    const {}* p{} = (const {}*)({}) + column;\n", type, i, type, place(i));
    }
  }
  for (size_t i = 0; i < body.stores.size(); ++i) {
    const std::string_view type = type_name(body.stores[i].type);
    text += format("    {}* r{} = ({}*)({}) + column;\n", type, i, type, place(loads + i));
  }
  return text;
}

}  // namespace

std::string product_head() { return "#include \"codegen/device/products.h\"\n"; }

std::string product_blocks_source(at::ScalarType type) {
  return format(
      "#include \"codegen/device/product_blocks.h\"\nusing namespace hindcast::device;\n\n"
      "extern \"C\" const ProductBlocks<{}> blocks = kProductBlocks<{}>;\n",
      type_name(type), type_name(type));
}

std::string product_source(const Body& body) {
  const std::string_view type = type_name(body.product->type);
  std::string text = format(
      "extern \"C\" void product(const void* blocks, const long* shape, const void* a, const void* b, char* const* pointers, const long* "
      "row_strides,\n"
      "                        const double* scalars, long begin, long end, char* scratch) {{\n{}",
      scalar_lines(body));
  text += format(
      "  const auto finish = [&](const {}* product, long row, long column, long count) __attribute__((always_inline)) {{\n{}"
      "{}  }};\n",
      type, row_pointers(body), dense_loop(body, "0", "count", false, false));
  text += format(
      "  multiply<{}, {}>(*(const ProductBlocks<{}>*)blocks, Factors<{}>{{(const {}*)a, (const {}*)b, shape[0], shape[1], shape[2]}}, "
      "begin, end, shape[3], ({}*)scratch,\n",
      body.product->is_a_transposed, body.product->is_b_transposed, type, type, type, type, type);
  return text + "      finish);\n}\n";
}

}  // namespace hindcast::codegen::cpu
