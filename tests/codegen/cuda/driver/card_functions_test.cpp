// Functions of the device library that exist only for a card, as machine code: the emulator cannot run them
// (codegen/device/card_functions.h).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/format.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"
#include "tests/support/machine_code.h"

namespace hindcast::tests {
namespace {

using base::format;

const std::string kHead = "#include \"codegen/device/ops.h\"\n#include \"codegen/device/vectors.h\"\nusing namespace hindcast::device;\n";

/// By kernel. One compile for all of them: NVRTC and the disassembler spend most of their time on the headers and their own start-up.
std::map<std::string, std::string> machine_code(const codegen::cuda::Nvrtc& nvrtc, const std::string& kernels, int architecture) {
  return kernels_in(
      disassembled(nvrtc.compile(kHead + kernels, codegen::device_library(), codegen::cuda::kernel_options(architecture)).object));
}

TEST(CardFunctions, OfFloatAreThoseOfCudasLibrary) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  const std::vector<std::string> names = {"rsqrt", "exp", "exp2",  "expm1", "tanh",  "sinh", "cosh", "erf",
                                          "erfc",  "log", "log1p", "log2",  "log10", "asin", "acos", "atan"};
  std::string kernels = R"(extern "C" __global__ void own_pow(float* x) { x[0] = pow<float>(x[1], x[2]); }
extern "C" __global__ void cudas_pow(float* x) { x[0] = ::powf(x[1], x[2]); }
)";
  for (const std::string& name : names) {
    kernels += format(R"(extern "C" __global__ void own_{}(float* x) {{ x[0] = {}<float>(x[1]); }}
extern "C" __global__ void cudas_{}(float* x) {{ x[0] = ::{}f(x[1]); }}
)",
                      name, name, name, name);
  }
  for (const int architecture : kArchitectures) {
    auto code = machine_code(*nvrtc, kernels, architecture);
    ASSERT_EQ(code.size(), 2 * (names.size() + 1)) << "sm_" << architecture;
    for (const std::string& name : names) EXPECT_EQ(code["own_" + name], code["cudas_" + name]) << name << ", sm_" << architecture;
    EXPECT_EQ(code["own_pow"], code["cudas_pow"]) << "sm_" << architecture;
    EXPECT_NE(code["own_exp"], code["own_exp2"]) << "sm_" << architecture;
  }
}

/// Reads two tensors of bfloat16 and writes one, in vectors.
std::string kernel_of_halves(const std::string& name, const std::string& value) {
  return format(R"(extern "C" __global__ void {}(const bfloat16* x, const bfloat16* y, bfloat16* out) {{
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
                name, value);
}

double instructions_an_element(const std::string& code) {
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

// While an H100 moves the 6 bytes of an element (3 TB/s), its 132 multiprocessors issue some 59 instructions for it. Above that a kernel is
// limited by its arithmetic. Slow paths, like a division's, count in full.
TEST(CardFunctions, LeaveTheMemoryOfHalvesTheTime) {
  HC_GET_NVRTC(nvrtc);
  if (disassembler(&why_not).empty()) GTEST_SKIP() << why_not;
  const std::vector<std::string> values = {"grad * exp<float>(self)",          "grad * tanh<float>(self)",
                                           "grad * sigmoid<float>(self)",      "grad * log<float>(self)",
                                           "grad * gelu<float>(self)",         "grad * silu<float>(self)",
                                           "gelu_backward<float>(grad, self)", "gelu_tanh_backward<float>(grad, self)",
                                           "silu_backward<float>(grad, self)", "grad * softplus<float>(self, 1.0f, 20.0f)",
                                           "grad * sin_near<float>(self)"};
  std::string kernels;
  for (size_t i = 0; i < values.size(); ++i) kernels += kernel_of_halves("k" + std::to_string(i), values[i]);
  auto code = machine_code(*nvrtc, kernels, 90);
  for (size_t i = 0; i < values.size(); ++i) {
    const double count = instructions_an_element(code["k" + std::to_string(i)]);
    EXPECT_GT(count, 4) << values[i];
    EXPECT_LT(count, 50) << values[i];
  }
}

}  // namespace
}  // namespace hindcast::tests
