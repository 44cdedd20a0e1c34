// Indices computed by division, also beyond 32 bits.

#include "codegen/device/indexing.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests::cuda {
namespace {

using device::divide;
using device::Divider;
using device::divider_of;

TEST(Indexing, DividesAsTheProcessorDoes) {
  const std::vector<int64_t> edges = {
      1, 2, 3, 5, 7, 31, 32, 33, 641, 65535, 65536, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, (int64_t{1} << 31) - 1};
  const std::vector<int64_t> large = {int64_t{1} << 31, (int64_t{1} << 31) + 1, int64_t{1} << 32, (int64_t{1} << 40) + 7};
  std::mt19937_64 random(1);
  const auto check = [&](int64_t number, int64_t divisor) {
    const Divider by = divider_of(divisor);
    EXPECT_EQ(divide(static_cast<long long>(number), by), number / divisor) << number << " / " << divisor;
    if ((number | divisor) >> 31 != 0) return;
    EXPECT_EQ(divide(static_cast<uint32_t>(number), by), number / divisor) << number << " / " << divisor;
  };
  std::vector<int64_t> divisors = edges;
  for (int i = 0; i < 300; ++i) divisors.push_back(static_cast<int64_t>(random() % (uint64_t{1} << (1 + i % 31))) + 1);
  divisors.insert(divisors.end(), large.begin(), large.end());
  for (const int64_t divisor : divisors) {
    for (const int64_t number : edges) check(number, divisor);
    for (const int64_t number : large) check(number, divisor);
    check(0, divisor);
    // Around multiples, where a quotient that is off by one shows.
    for (int i = 0; i < 50; ++i) {
      const int64_t multiple = static_cast<int64_t>(random() % (uint64_t{1} << 31)) / divisor * divisor;
      for (const int64_t number : {multiple - 1, multiple, multiple + 1}) check(std::max<int64_t>(number, 0), divisor);
    }
  }
}

class LongIndices : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  }
};

// A card on which a few elements count as many.
TEST_F(LongIndices, OfANest) {
  codegen::cuda::Limits limits = emulator_machine().limits();
  limits.short_indices = 1000;
  const WithLimits with(limits);
  const auto function = [](const Tensors& x) { return Tensors{(at::constant_pad_nd(x[0], {2, 3, 1, 0}) * x[1] + x[2]).tanh()}; };
  for (const auto& [rows, kernel] :
       {std::pair<int64_t, const char*>{26, "nest_each"}, {27, "nest_each"}, {28, "nest_any"}, {300, "nest_any"}}) {
    const Tensors inputs{at::randn({rows - 1, 31}), at::randn({rows, 36}), at::randn({rows, 1})};
    const ForwardProgram program(function, inputs);
    take_launched();
    const Tensors ours = program.run(inputs);
    EXPECT_THAT(take_launched(), testing::ElementsAre(kernel)) << rows;
    expect_near(ours, function(inputs), function(as(inputs, at::kDouble)));
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda
