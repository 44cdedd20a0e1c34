#include "codegen/cuda/body_lines.h"

#include "base/format.h"
#include "codegen/cuda/cost_model.h"
#include "codegen/fuse/functors.h"
#include "codegen/kernel/angles.h"
#include "codegen/kernel/body_text.h"

namespace hindcast::codegen::cuda {

using base::format;

std::string assignment(const Body& body, size_t op) {
  const BodyOp& of = body.ops[op];
  const bool may_be_far =
      takes_angle(of.function) && of.args[0].kind != Operand::Kind::Scalar && form_of(body, op, /*near=*/false, cost_model()).empty();
  if (!may_be_far) return codegen::assignment(body, op, cost_model());
  const std::string_view type = type_name(body.compute);
  const std::string angle = name_of(of.args[0]);
  return format("v{} = magnitude_of({}) <= kNearAngle<{}> ? {}_near<{}>({}) : {}<{}>({})", op, angle, type, of.function, type, angle,
                of.function, type, angle);
}

std::string scalar_lines(const Body& body, const std::string& words, const std::string& indent) {
  const std::string_view type = type_name(body.compute), real = type_name(c10::toRealValueType(body.compute));
  std::string lines;
  for (uint32_t i = 0; i < body.scalars; ++i)
    lines += format("{}const {} s{} = Scalar<{}>::of({}[{}]);\n", indent, type, i, real, words, i);
  return lines;
}

std::string vector_type(const Body& body, size_t load, const std::string& length) {
  return body.loads[load].counts ? format("Counters<{}>", length) : format("Vector<{}, {}>", type_name(body.loads[load].type), length);
}

std::string_view load_function(const Body& body, size_t load) { return body.loads[load].counts ? "load_counters" : "load_vector"; }

std::string head_of_text() {
  return "#include \"codegen/device/ops.h\"\n"
         "#include \"codegen/device/indexing.h\"\n"
         "#include \"codegen/device/threads.h\"\n"
         "#include \"codegen/device/vectors.h\"\n"
         "using namespace hindcast::device;\n\n";
}

size_t pointers_of(const Body& body) {
  size_t count = body.loads.size() + body.stores.size();
  for (const BodyStore& store : body.stores) count += 2 * store.leaves;
  return count;
}

std::string argument_fields(const Body& body) {
  std::string fields = format("  char* pointers[{}];\n", pointers_of(body));
  if (body.scalars != 0) fields += format("  uint64 scalars[{}];\n", body.scalars);
  return fields;
}

}  // namespace hindcast::codegen::cuda
