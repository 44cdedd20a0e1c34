#include "codegen/cpu/source.h"

#include "engine/base/check.h"
#include "engine/base/format.h"

namespace hindcast::codegen {
namespace {

using base::format;

std::string_view type_name(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Float:
      return "float";
    case at::ScalarType::Double:
      return "double";
    case at::ScalarType::Bool:
      return "bool";
    default:
      break;
  }
  HC_CHECK(false, "a kernel over {}", c10::toString(type));
  return "";
}

std::string name(Operand operand) {
  switch (operand.kind) {
    case Operand::Kind::Load:
      return format("x{}", operand.index);
    case Operand::Kind::Scalar:
      return format("s{}", operand.index);
    case Operand::Kind::Result:
      return format("v{}", operand.index);
  }
  return "";
}

}  // namespace

std::string cpu_source(const Body& body) {
  const std::string_view type = type_name(body.compute);
  const size_t loads = body.loads.size();

  std::string element;
  for (size_t i = 0; i < body.ops.size(); ++i) {
    std::string args;
    for (const Operand operand : body.ops[i].args) args += (args.empty() ? "" : ", ") + name(operand);
    element += format("    const {} v{} = {}<{}>({});\n", type, i, body.ops[i].function, type, args);
  }
  std::string scalars;
  for (uint32_t i = 0; i < body.scalars; ++i) scalars += format("  const {} s{} = ({})scalars[{}];\n", type, i, type, i);

  std::string text = "#include \"codegen/device/ops.h\"\nusing namespace hindcast::device;\n\n";
  text += "extern \"C\" void dense(char* const* pointers, const double* scalars, long count) {\n" + scalars;
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view load = type_name(body.loads[i].type);
    if (body.loads[i].walk == Walk::Still) {
      text += format("  const {} x{} = *(const {}*)pointers[{}];\n", load, i, load, i);
    } else {
      text += format("  const {}* __restrict p{} = (const {}*)pointers[{}];\n", load, i, load, i);
    }
  }
  for (size_t i = 0; i < body.stores.size(); ++i) text += format("  {}* __restrict r{} = ({}*)pointers[{}];\n", type, i, type, loads + i);
  text += "  for (long i = 0; i < count; ++i) {\n";
  for (size_t i = 0; i < loads; ++i) {
    if (body.loads[i].walk == Walk::Dense) text += format("    const {} x{} = p{}[i];\n", type_name(body.loads[i].type), i, i);
  }
  text += element;
  for (size_t i = 0; i < body.stores.size(); ++i) text += format("    r{}[i] = {};\n", i, name(body.stores[i]));
  text += "  }\n}\n\n";

  text += "extern \"C\" void strided(char* const* pointers, const double* scalars, long count, const long* strides) {\n" + scalars;
  text += "  for (long i = 0; i < count; ++i) {\n";
  for (size_t i = 0; i < loads; ++i) {
    const std::string_view load = type_name(body.loads[i].type);
    text += format("    const {} x{} = *(const {}*)(pointers[{}] + i * strides[{}]);\n", load, i, load, i, i);
  }
  text += element;
  for (size_t i = 0; i < body.stores.size(); ++i) {
    text += format("    *({}*)(pointers[{}] + i * strides[{}]) = {};\n", type, loads + i, loads + i, name(body.stores[i]));
  }
  text += "  }\n}\n";
  return text;
}

}  // namespace hindcast::codegen
