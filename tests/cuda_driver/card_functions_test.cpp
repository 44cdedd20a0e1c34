// What the device library has for a card alone, as machine code: the emulator cannot run it (codegen/device/card_functions.h).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "base/format.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"
#include "tests/support/machine_code.h"

namespace hindcast::tests {
namespace {

using base::format;

const std::string kHead =
    "#include \"codegen/device/ops.h\"\n#include \"codegen/device/vectors.h\"\nusing namespace hindcast::device;\nextern \"C\" __global__ "
    "void ";

std::string machine_code(const codegen::cuda::Nvrtc& nvrtc, const std::string& kernel, int architecture) {
  return disassembled(nvrtc.compile(kHead + kernel, codegen::device_library(), codegen::cuda::kernel_options(architecture)).object);
}

TEST(CardFunctions, OfFloatAreThoseOfCudasLibrary) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  for (const std::string name :
       {"rsqrt", "exp", "exp2", "expm1", "tanh", "sinh", "cosh", "erf", "erfc", "log", "log1p", "log2", "log10", "asin", "acos", "atan"}) {
    for (const int architecture : kArchitectures) {
      const auto code = [&](const std::string& function) {
        return machine_code(*nvrtc, format("k(float* x) {{ x[0] = {}(x[1]); }}\n", function), architecture);
      };
      EXPECT_EQ(code(name + "<float>"), code("::" + name + "f")) << "sm_" << architecture;
    }
  }
  const auto power = [&](const std::string& function) {
    return machine_code(*nvrtc, format("k(float* x) {{ x[0] = {}(x[1], x[2]); }}\n", function), 90);
  };
  EXPECT_EQ(power("pow<float>"), power("::powf"));
}

/// Instructions an element of a kernel that reads two tensors of bfloat16 and writes one, by vectors.
double instructions_an_element(const codegen::cuda::Nvrtc& nvrtc, const std::string& value) {
  const std::string code = machine_code(nvrtc,
                                        format(R"(k(const bfloat16* x, const bfloat16* y, bfloat16* out) {{
  const uint32 first = (blockIdx.x * 256 + threadIdx.x) * 8;
  const Vector<bfloat16, 8> a = load_vector<8>(x + first), b = load_vector<8>(y + first);
  Vector<bfloat16, 8> results;
#pragma unroll
  for (int j = 0; j < 8; ++j) {{
    const float self = convert<float>(a.get(j)), grad = convert<float>(b.get(j));
    results.set(j, convert<bfloat16>({}));
  }}
  store_vector<8>(out + first, results);
}}
)",
                                               value),
                                        90);
  int count = 0;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("/*");  // the address before an instruction
    if (at != std::string::npos && at + 2 < line.size() && std::isxdigit(static_cast<unsigned char>(line[at + 2])) != 0 &&
        line.find("NOP") == std::string::npos)
      ++count;
  }
  return count / 8.0;
}

// While an H100 moves the 6 bytes of an element (3 TB/s), its 132 multiprocessors give out some 59 instructions for each. Above that a kernel is as
// slow as its arithmetic. Of slow paths, as a division has one, all is counted.
TEST(CardFunctions, LeaveTheMemoryOfHalvesTheTime) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  for (const std::string value :
       {"grad * exp<float>(self)", "grad * tanh<float>(self)", "grad * sigmoid<float>(self)", "grad * log<float>(self)",
        "grad * gelu<float>(self)", "grad * silu<float>(self)", "gelu_backward<float>(grad, self)", "gelu_tanh_backward<float>(grad, self)",
        "silu_backward<float>(grad, self)", "grad * softplus<float>(self, 1.0f, 20.0f)", "grad * sin_near<float>(self)"}) {
    const double count = instructions_an_element(*nvrtc, value);
    EXPECT_GT(count, 4) << value;
    EXPECT_LT(count, 50) << value;
  }
}

}  // namespace
}  // namespace hindcast::tests
