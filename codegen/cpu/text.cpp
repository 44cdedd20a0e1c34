#include "codegen/cpu/text.h"

#include "engine/base/check.h"
#include "engine/base/format.h"

namespace hindcast::codegen {

using base::format;

std::string_view type_name(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Float:
      return "float";
    case at::ScalarType::Double:
      return "double";
    case at::ScalarType::BFloat16:
      return "bfloat16";
    case at::ScalarType::Half:
      return "float16";
    case at::ScalarType::Long:
      return "int64";
    case at::ScalarType::Bool:
      return "bool";
    default:
      break;
  }
  HC_CHECK(false, "a kernel over {}", c10::toString(type));
  return "";
}

std::string name_of(Operand operand) {
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

std::string assignment(const Body& body, size_t op) {
  std::string args;
  for (const Operand operand : body.ops[op].args) args += (args.empty() ? "" : ", ") + name_of(operand);
  return format("v{} = {}<{}>({})", op, body.ops[op].function, type_name(body.compute), args);
}

std::string load_from(const Body& body, size_t load, const std::string& place) {
  const at::ScalarType type = body.loads[load].type;
  const bool as_it_is = type == body.compute || type == at::kBool || type == at::kLong;
  const std::string_view name = as_it_is ? type_name(type) : type_name(body.compute);
  return format("const {} x{} = {};", name, load, as_it_is ? place : format("convert<{}>({})", name, place));
}

std::string converted(const Body& body, const BodyStore& store) {
  if (store.type == body.compute) return name_of(store.value);
  return format("convert<{}>({})", type_name(store.type), name_of(store.value));
}

std::string scalar_lines(const Body& body) {
  const std::string_view type = type_name(body.compute);
  std::string lines;
  for (uint32_t i = 0; i < body.scalars; ++i) lines += format("  const {} s{} = ({})scalars[{}];\n", type, i, type, i);
  return lines;
}

}  // namespace hindcast::codegen
