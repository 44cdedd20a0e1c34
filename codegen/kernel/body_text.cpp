#include "codegen/kernel/body_text.h"

#include "base/check.h"
#include "base/format.h"

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
    case at::ScalarType::Int:
      return "int32";
    case at::ScalarType::Short:
      return "int16";
    case at::ScalarType::Char:
      return "int8";
    case at::ScalarType::Byte:
      return "uint8";
    case at::ScalarType::Bool:
      return "bool8";
    case at::ScalarType::ComplexFloat:
      return "complex64";
    case at::ScalarType::ComplexDouble:
      return "complex128";
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
    case Operand::Kind::Product:
      return "product";
  }
  return "";
}

std::string one_hot_of(const BodyOp& op, std::string_view column, std::string_view type) {
  const std::string other = op.args.size() == 3 ? name_of(op.args[2]) : format("{}(0)", type);
  return format("{} == {} ? {} : {}", column, name_of(op.args[0]), name_of(op.args[1]), other);
}

std::string call_of(const Body& body, size_t op, std::string_view form) {
  std::string args;
  for (const Operand operand : body.ops[op].args) args += (args.empty() ? "" : ", ") + name_of(operand);
  return format("{}{}<{}>({})", body.ops[op].function, form, type_name(body.compute), args);
}

namespace {

bool is_as_it_lies(const Body& body, size_t load) {
  const at::ScalarType type = body.loads[load].type;
  return type == body.compute || type == at::kInt || type == at::kLong;
}

}  // namespace

std::string_view type_of_load(const Body& body, size_t load) {
  const at::ScalarType type = body.loads[load].type;
  if (type == at::kBool) return "bool";
  return type_name(is_as_it_lies(body, load) ? type : body.compute);
}

std::string load_from(const Body& body, size_t load, const std::string& place) {
  const std::string_view type = type_of_load(body, load);
  return format("const {} x{} = {};", type, load, is_as_it_lies(body, load) ? place : format("convert<{}>({})", type, place));
}

std::string converted(const Body& body, const BodyStore& store) {
  if (store.type == body.compute) return name_of(store.value);
  return format("convert<{}>({})", type_name(store.type), name_of(store.value));
}

}  // namespace hindcast::codegen
