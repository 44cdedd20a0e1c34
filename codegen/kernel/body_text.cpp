#include "codegen/kernel/body_text.h"

#include "codegen/kernel/angles.h"
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
      return "product[i]";
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

std::string assignment(const Body& body, size_t op, const CostModel& costs, bool near) {
  return format("v{} = {}", op, call_of(body, op, form_of(body, op, near, costs)));
}

std::string block_lines(const std::string& indent, const std::string& count, long length) {
  return format("{}for (long begin = 0; begin < {}; begin += {}) {{\n{}const long end = begin + {} < {} ? begin + {} : {};\n", indent,
                count, length, indent, length, count, length, count);
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

std::string store_lines(const Body& body, size_t store, size_t first_leaf, bool leaves, const std::string& indent) {
  const uint32_t count = leaves ? body.stores[store].leaves : 0;
  const std::string value = converted(body, body.stores[store]);
  if (count == 0) return format("{}r{}[i] = {};\n", indent, store, value);
  const std::string_view type = type_name(body.stores[store].type);
  std::string lines = format("{}const {} w{} = {};\n{}r{}[i] = w{};\n", indent, type, store, value, indent, store, store);
  for (size_t leaf = first_leaf; leaf < first_leaf + count; ++leaf)
    lines += format("{}sum{}[i] = convert<{}>(widen(term{}[i]) + widen(w{}));\n", indent, leaf, type, leaf, store);
  return lines;
}

std::string scalar_lines(const Body& body) {
  const std::string_view type = type_name(body.compute);
  std::string lines;
  for (uint32_t i = 0; i < body.scalars; ++i) lines += format("  const {} s{} = ({})scalars[{}];\n", type, i, type, i);
  return lines;
}

}  // namespace hindcast::codegen
