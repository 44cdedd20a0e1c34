// Integers as operands of kernels: masks that a program converted to numbers, and counts.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor whole(at::IntArrayRef sizes, at::ScalarType type, int64_t least = 1) { return at::randint(least, 100, sizes).to(type); }

TEST(Integers, OfEachType) {
  for (const auto type : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    SCOPED_TRACE(c10::toString(type));
    const auto program = [type](at::TensorOptions options) {
      const auto x = near_leaf({7, 33}, options), y = near_leaf({7, 33}, options);
      const auto product = x * whole({7, 33}, type, 0) / whole({33}, type) * y;
      (product * whole({33, 7}, type).t() * whole({}, type)).sum().backward();
      return Tensors{x.grad(), y.grad()};
    };
    expect_near_grads(program);
    EXPECT_EQ(calls_left([&] { program(at::kFloat); }), std::vector<std::string>());
  }
}

// More digits than a float has, and a number that is the whole result.
TEST(Integers, AreRoundedAsByATen) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({5}, options), number = near_leaf({}, options);
    const auto large = at::tensor({(int64_t{1} << 24) + 1, (int64_t{1} << 53) + 1, int64_t{-3}, int64_t{0}, INT64_MAX});
    ((x * large).mul(2).sum() + (number * whole({}, at::kLong)).mul(3)).backward();
    return Tensors{x.grad(), number.grad()};
  });
}

TEST(Integers, OfComplexNumbersAndOfShortFloats) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 20}, options), y = near_leaf({6, 20}, options);
    const auto z = at::complex(x, y) * whole({6, 20}, at::kInt) * whole({20}, at::kLong);
    const auto narrow = x.to(at::kBFloat16) * whole({6, 20}, at::kLong);  // which ATen rounds to bfloat16 first
    (at::real(z * z).sum() + narrow.tanh().sum().to(options.dtype())).backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(Integers, CountsOfTies) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = at::randint(0, 4, {40, 9}).to(options.dtype()).set_requires_grad(true), y = near_leaf({40, 9}, options);
    const auto largest = (x * 2).amax(1, true), least = (x * 3).amin(0, true);
    (largest * y + least * y).mul(0.5).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(Integers, InLargeTensors) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({300, 701}, options);
    (x * (whole({300, 701}, at::kLong) > 50).to(at::kByte) * whole({701, 300}, at::kShort).t()).mul(0.5).sum().backward();
    return Tensors{x.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests
