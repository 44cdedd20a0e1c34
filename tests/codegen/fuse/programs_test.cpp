// Functions whose program with kernels must compute what ATen computes: groups that read each other, numbers that ATen rounds.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/forward_program.h"

namespace hindcast::tests::programs_test {
namespace {

void expect_stock(const Function& function, const Tensors& given) {
  const ForwardProgram program(function, given);
  for (int run = 0; run < 2; ++run) expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
}

void expect_bits(const Function& function, const Tensors& given) {
  const Tensors seen = ForwardProgram(function, given).run(given), stock = function(given);
  for (size_t i = 0; i < stock.size(); ++i) {
    const at::Tensor both_nan = seen[i].isnan() & stock[i].isnan();
    EXPECT_TRUE((seen[i].eq(stock[i]) | both_nan).all().item<bool>()) << seen[i] << "\nstock:\n" << stock[i];
  }
}

// The gradient's kernel needs `x` only for its sizes. What reads both must not join the kernel of `x`, which runs before.
TEST(Programs, WhatReadsAGroupAndItsReader) {
  const auto gradient_of = [](const at::Tensor& x, const Tensors& in) {
    return at::nll_loss_backward(in[0], x, in[1], {}, at::Reduction::Mean, -100, in[2]);
  };
  const at::Tensor one = at::scalar_tensor(1.0), target = at::randint(20, {6}), total = at::scalar_tensor(6.0);
  expect_stock(
      [&](const Tensors& in) {
        const at::Tensor x = at::addmm(in[3], in[4], in[5]);
        return Tensors{x * gradient_of(x, in)};
      },
      {one, target, total, at::randn(20), at::randn({6, 8}), at::randn({8, 20})});
  expect_stock(
      [&](const Tensors& in) {
        const at::Tensor x = in[3].t() * 2;
        return Tensors{x * gradient_of(x, in)};
      },
      {one, target, total, at::randn({20, 6})});
}

TEST(Programs, WhatReadsAStatisticAndTheGradientThatTakesIt) {
  expect_stock(
      [](const Tensors& in) {
        const at::Tensor mean = in[3] * 2;
        const auto [of_input, of_weight, of_bias] =
            at::native_batch_norm_backward(in[0], in[1], in[2], mean, in[4], in[5], in[6], true, 1e-5, {true, true, true});
        return Tensors{mean * of_weight, of_input, of_bias};
      },
      {at::randn({4, 5, 6}), at::randn({4, 5, 6}), at::randn(5), at::randn(5), at::rand(5), at::randn(5), at::rand(5)});
}

// The loss reads the rows' kernel, which then also computes the gradient.
TEST(Programs, AGradientJoinsTheKernelOfItsForward) {
  const Function function = [](const Tensors& in) {
    const at::Tensor log_probs = (in[0] * 2).log_softmax(1), chosen = log_probs.mul(in[1]).sum(1), loss = -(chosen * in[2]).mean();
    const at::Tensor first = (at::ones_like(loss).neg().expand({70}) / 70 * in[2]).unsqueeze(1) * in[1];
    return Tensors{loss, at::_log_softmax_backward_data(first, log_probs, 1, log_probs.scalar_type())};
  };
  const Tensors given = {at::randn({70, 3}), at::rand({70, 3}), at::randn(70)};
  expect_stock(function, given);
  EXPECT_EQ(ForwardProgram(function, given).kernels(), 2U);
}

// Each op reads what another group makes of what it has made: none of the groups may wait for itself.
TEST(Programs, SmallGroupsOfAlternatingDomains) {
  const Function function = [](const Tensors& in) {
    at::Tensor x = in[0], row = in[1], one = in[0].sum();
    Tensors results;
    for (int i = 0; i < 12; ++i) {
      x = (x + row.unsqueeze(1)).sigmoid() * one.tanh();
      row = i % 3 == 0 ? x.mean(1) : row * 0.5 + x.amax(1) * one;
      one = i % 2 == 0 ? row.mean() + one * 0.1 : (x * row.unsqueeze(1)).mean().sin();
      results.push_back(one * 2);
    }
    results.insert(results.end(), {x, row, one});
    return results;
  };
  for (const int64_t columns : {3, 40}) {
    const Tensors given = {at::randn({70, columns}, at::kDouble), at::randn(70, at::kDouble)};
    const Tensors seen = ForwardProgram(function, given).run(given), stock = function(given);
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(seen[i], stock[i], 1e-9, 0)) << i;
  }
}

// The mean's divisor is the number of elements of the input, though the result has as many as the target.
TEST(Programs, GradientsOfLossesWhoseTargetHasMoreElements) {
  for (const at::DimVector& sizes : {at::DimVector{3, 1}, {4}, {3, 4}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    expect_stock(
        [](const Tensors& in) {
          const at::Tensor x = in[0] * 2;
          return Tensors{at::mse_loss_backward(in[2], x, in[1], at::Reduction::Mean),
                         at::smooth_l1_loss_backward(in[2], x, in[1], at::Reduction::Mean, 0.5),
                         at::huber_loss_backward(in[2], x, in[1], at::Reduction::Mean, 0.5)};
        },
        {at::randn(sizes), at::randn({3, 4}), at::scalar_tensor(1.5)});
  }
}

// ATen's CPU kernels round these numbers to the 16 bits of the tensor.
TEST(Programs, NumbersBesideTensorsOf16Bits) {
  const at::Tensor x = at::tensor({-1.0, 0.1, 0.3, 0.7, 1.0, 50.0, 100.0}), y = -x;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    expect_bits(
        [](const Tensors& in) {
          return Tensors{at::hardshrink(in[0], 0.1), at::hardshrink(in[0], 0.3), at::hardshrink_backward(in[1], in[0], 0.1),
                         at::softshrink_backward(in[1], in[0], 0.1), at::rsub(in[0], 1.003)};
        },
        {x.to(type), y.to(type)});
    const auto with_alpha = [](const Tensors& in) {
      return Tensors{at::add(in[0], in[1], 1.003), at::sub(in[0], in[0], 1.003), at::rsub(in[0], 1.0, 1.003)};
    };
    // Half rounds the number to 1.0029, and ATen then also the product.
    if (type == at::kBFloat16) expect_bits(with_alpha, {x.to(type), y.to(type)});
    const Tensors positive = {x.abs().to(type)};
    expect_stock([](const Tensors& in) { return Tensors{at::pow(in[0], 1.003), at::pow(1.003, in[0]), at::pow(in[0], 2.0)}; }, positive);
    expect_stock([](const Tensors& in) { return Tensors{at::xlogy(in[0], 1.003), at::special_xlog1py(in[0], -0.5)}; }, positive);
    expect_stock(
        [](const Tensors& in) {
          const at::Tensor number = at::scalar_tensor(1.003);
          return Tensors{at::pow(in[0], number), at::xlogy(in[0], number)};
        },
        positive);
    expect_bits([](const Tensors& in) { return Tensors{at::logit(in[0] / 100, 1e-6).isinf()}; }, positive);
  }
}

// A number that a later op of the same kernel divides by. 1e-9 is 0 in half: 0 / 0 is NaN there.
TEST(Programs, NumbersThatAreResultsOf16Bits) {
  const at::Tensor x = at::tensor({0.0, -1.0, 0.1, 0.3, 0.7, 1.0, 50.0});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    for (const double number : {0.1, 0.3, 1e-9}) {
      SCOPED_TRACE(number);
      expect_bits(
          [=](const Tensors& in) {
            const at::Tensor &y = in[0], mask = y.le(0);
            return Tensors{y / y.clamp_min(number),
                           y / y.clamp_max(number),
                           y / y.clamp(number, 0.6),
                           y / y.clamp(number),
                           y / y.clamp(std::nullopt, number),
                           y / at::hardtanh(y, -number, number),
                           y / at::threshold(y, 0.1, number),
                           y / at::threshold(y, number, 1.0),
                           y / y.masked_fill(mask, number),
                           at::add(y, number),
                           at::sub(y, number),
                           y / at::add(y.relu() * 0, number)};
          },
          {x.to(type)});
    }
  }
}

TEST(Programs, LogitWhoseBoundsAreSwapped) {
  const Function function = [](const Tensors& in) { return Tensors{at::logit(in[0], 0.7), at::logit(in[0], 0.5), at::logit(in[0], 0.2)}; };
  expect_stock(function, {at::tensor({0.1F, 0.5F, 0.9F, 2.0F})});
}

}  // namespace
}  // namespace hindcast::tests::programs_test
