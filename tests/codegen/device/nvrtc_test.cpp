// The device library compiled by NVRTC: every functor of base/pointwise_ops.def for every type it takes, in one program.

#include "codegen/fuse/functors.h"
#include "codegen/kernel/device_library.h"
#include "tests/support/machine_code.h"

#include <gtest/gtest.h>

namespace hindcast::tests {
namespace {

using codegen::Functor;
using codegen::kFunctors;

std::vector<std::string> types_of(Functor::Domain domain) {
  using enum Functor::Domain;
  if (domain == COMPLEX) return {"complex64", "complex128"};
  const std::vector<std::string> floats = {"float", "double"}, integers = {"uint8", "int8", "int16", "int32", "int64"};
  std::vector<std::string> types = floats;
  if (domain != FLOAT) types.insert(types.end(), integers.begin(), integers.end());
  if (domain == ANY) types.push_back("bool");
  return types;
}

std::string kernel_of(const Functor& op, const std::string& type) {
  const std::string name(op.name);
  std::string arguments;
  for (int i = 0; i < op.operands + op.scalars; ++i) {
    const std::string value = "in[" + std::to_string(i) + "]";
    arguments += (i == 0 ? "" : ", ") + (name == "where" && i == 0 ? value + " != " + type + "(0)" : value);
  }
  const std::string result = op.result == Functor::Result::BOOL ? "bool" : type;
  return "extern \"C\" __global__ void " + name + "_" + type + "(const " + type + "* in, " + result +
         "* out) { *out = hindcast::device::" + name + "<" + type + ">(" + arguments + "); }\n";
}

std::string conversions() {
  std::string text;
  for (const std::string storage : {"bfloat16", "float16"}) {
    for (const std::string type : {"float", "double", "int64", "bool"}) {
      text += "extern \"C\" __global__ void " + storage + "_" + type + "(" + storage + "* a, " + type + "* b) { a[0] = convert<" + storage +
              ">(b[0]); b[1] = convert<" + type + ">(a[1]); }\n";
    }
  }
  for (const std::string type : {"complex64", "complex128"}) {
    for (const std::string from : {"float", "double", "bfloat16", "float16", "int64", "bool", "complex64"}) {
      text += "extern \"C\" __global__ void " + from + "_" + type + "(" + from + "* a, " + type + "* b, bool* c) { b[0] = convert<" + type +
              ">(a[0]); c[0] = convert<bool>(b[1]); }\n";
    }
  }
  return text;
}

class DeviceLibrary : public testing::TestWithParam<int> {};

TEST_P(DeviceLibrary, CompilesWithNvrtc) {
  HC_GET_NVRTC(nvrtc);
  std::string source = "#include \"codegen/device/ops.h\"\nusing namespace hindcast::device;\n" + conversions();
  for (const Functor& op : kFunctors) {
    for (const std::string& type : types_of(op.domain)) source += kernel_of(op, type);
  }
  EXPECT_GT(nvrtc->compile(source, codegen::device_library(), codegen::cuda::kernel_options(GetParam())).object.size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Architectures, DeviceLibrary, testing::ValuesIn(kArchitectures),
                         [](const auto& info) { return "sm_" + std::to_string(info.param); });

}  // namespace
}  // namespace hindcast::tests
