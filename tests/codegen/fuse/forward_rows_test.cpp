// Forwards by rows: norms, softmax and reductions in one kernel with the ops around them.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/forward_program.h"

namespace hindcast::tests {
namespace {

using Forward = ForwardProgram;

struct Expected {
  size_t kernels = 1;
  Names left = {};
  std::vector<at::ScalarType> types = {at::kFloat, at::kDouble, at::kBFloat16};
  /// In float64 the reference is ATen's result itself, which is off by more than 4 units after long sums.
  int units_in_double = 4;
  /// For a result that is a sum, the sum of the absolute terms: its rounding is relative to that, however small the sum is.
  std::function<at::Tensor(const Tensors&)> terms = nullptr;
};

/// Kernels compute what ATen computes, also if only one of the results is read.
void expect_fused(const Function& function, const Tensors& inputs, const Expected& expected = {}) {
  for (const at::ScalarType type : expected.types) {
    SCOPED_TRACE(c10::toString(type));
    const Tensors given = as(inputs, type);
    const Forward forward(function, given);
    EXPECT_THAT(forward.left(), testing::UnorderedElementsAreArray(expected.left));
    EXPECT_EQ(forward.kernels(), expected.kernels);
    const Tensors stock = function(as(given, type)), truth = function(as(given, at::kDouble));
    const int units = type == at::kDouble ? expected.units_in_double : 4;
    if (expected.terms != nullptr) {
      const double terms = expected.terms(as(given, at::kDouble)).item<double>();
      expect_near(forward.run(given)[0], stock[0], (type == at::kDouble ? stock : truth)[0], units, terms);
      continue;
    }
    expect_near(forward.run(given), stock, type == at::kDouble ? stock : truth, units);
    for (size_t i = 0; i < stock.size() && stock.size() > 1; ++i) {
      SCOPED_TRACE("only result " + std::to_string(i));
      const Forward one([&](const Tensors& values) { return Tensors{function(values)[i]}; }, given);
      expect_near(one.run(given), {stock[i]}, {type == at::kDouble ? stock[i] : truth[i]}, units);
    }
  }
}

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

// -- sizes that are expressions of others

// The kernel reads a copy of its operand then, since the axis of rows lies between those of columns.
TEST(ForwardRows, ASumOverTwoDimsWhoseLastBecomesOne) {
  const Function function = [](const Tensors& in) { return Tensors{(in[0].slice(2, 1) * 2).sum(at::IntArrayRef({0, 2}))}; };
  const Forward forward(function, {at::randn({5, 4, 3})}, SizesAre::Symbols);
  EXPECT_EQ(forward.kernels(), 1U);
  for (const int64_t length : {2, 5, 2, 7}) {
    SCOPED_TRACE(length);
    const Tensors given = {at::randn({length + 4, 4, length})};
    expect_near(forward.run(given), function(given), function(as(given, at::kDouble)));
  }
}

// -- of all elements

const std::vector<at::DimVector> kOfAll = {{7}, {3, 5}, {2, 3, 4}, {64, 64}, {300, 17}, {40, 1000}};

TEST(ForwardRows, SumsAndMeansOfAllElements) {
  for (const at::DimVector& sizes : kOfAll) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    expect_fused([](const Tensors& in) { return Tensors{(in[0] * 2).tanh().sum() * 3}; }, {random(sizes)},
                 {.units_in_double = 64, .terms = [](const Tensors& in) { return (in[0] * 2).tanh().abs().sum() * 3; }});
    expect_fused([](const Tensors& in) { return Tensors{(in[0] * in[1]).mean().neg()}; }, {random(sizes), random(sizes)},
                 {.units_in_double = 64, .terms = [](const Tensors& in) { return (in[0] * in[1]).abs().mean(); }});
  }
}

TEST(ForwardRows, AMeanOfSizesThatChange) {
  const auto function = [](const Tensors& in) { return Tensors{(in[0] * 2).mean() * 3}; };
  const Forward forward(function, {at::randn({4, 6})}, SizesAre::Symbols);
  EXPECT_EQ(forward.left(), Names{});
  for (const at::DimVector& sizes : {at::DimVector{4, 6}, {3, 8}, {17, 5}}) {
    const Tensors given = {at::randn(sizes)};
    const double terms = (given[0] * 2).abs().mean().item<double>() * 3;
    expect_near(forward.run(given)[0], function(given)[0], function(as(given, at::kDouble))[0], /*units=*/4, terms);
  }
}

TEST(ForwardRows, SquaredLoss) {
  for (const at::DimVector& sizes : kOfAll) {
    for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
      SCOPED_TRACE(at::IntArrayRef(sizes));
      expect_fused([&](const Tensors& in) { return Tensors{at::mse_loss(in[0] * 0.5, in[1], reduction)}; }, {random(sizes), random(sizes)},
                   {.units_in_double = 64});
    }
  }
}

// The mean of no elements is NaN, that of infinite ones infinite.
TEST(ForwardRows, SquaredLossOfNothingAndOfInfinities) {
  const auto function = [](const Tensors& in) { return Tensors{at::mse_loss(in[0] * 0.5, in[1])}; };
  const Tensors empty = {at::randn({0, 3}), at::randn({0, 3})};
  EXPECT_TRUE(Forward(function, empty).run(empty)[0].isnan().item<bool>());
  Tensors odd = {at::randn({4, 3}), at::randn({4, 3})};
  odd[1].select(0, 1).fill_(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(at::equal(Forward(function, odd).run(odd)[0], function(odd)[0]));
}

// -- norms

Tensors norm_of(const Tensors& inputs, at::IntArrayRef normal, bool has_weight, bool has_bias) {
  const auto [output, mean, rstd] =
      at::native_layer_norm(inputs[0] * 2 + 0.5, normal, has_weight ? inputs[1] : at::Tensor(), has_bias ? inputs[2] : at::Tensor(), 1e-5);
  return {output, mean, rstd};
}

TEST(ForwardRows, LayerNorm) {
  struct Case {
    at::DimVector sizes, normal;
  };
  for (const Case& c : {Case{{6, 20}, {20}},
                        {{2, 5, 48}, {48}},
                        {{4, 3, 5}, {3, 5}},
                        {{300, 17}, {17}},
                        {{2, 2000}, {2000}},
                        {{1, 33}, {33}},
                        {{3, 1, 16}, {16}},
                        {{513}, {513}},
                        {{2, 40001}, {40001}}}) {
    SCOPED_TRACE(at::IntArrayRef(c.sizes));
    at::manual_seed(1);
    const Tensors inputs{random(c.sizes), random(c.normal), random(c.normal)};
    for (const bool has_weight : {true, false}) {
      for (const bool has_bias : {true, false})
        expect_fused([&](const Tensors& values) { return norm_of(values, c.normal, has_weight, has_bias); }, inputs);
    }
  }
}

// Far from 0, a variance computed as a difference of squares would have no correct digits.
TEST(ForwardRows, LayerNormOfNumbersFarFromZero) {
  at::manual_seed(2);
  const auto function = [](const Tensors& values) {
    const auto [output, mean, rstd] = at::native_layer_norm(values[0] + values[1], {1000}, {}, {}, 1e-5);
    return Tensors{output, mean, rstd};
  };
  expect_fused(function, {random({8, 1000}) + 1000, random({1000})}, {.types = {at::kFloat}});
  expect_fused(function, {random({8, 1000}) * 1e-4 + 3, at::zeros({1000}, at::kDouble)}, {.types = {at::kFloat}});
  expect_fused(function, {at::full({8, 1000}, 7.5, at::kDouble), at::zeros({1000}, at::kDouble)}, {.types = {at::kFloat, at::kDouble}});
}

TEST(ForwardRows, LayerNormOfWhatIsNoNumber) {
  at::manual_seed(3);
  at::Tensor x = random({6, 70});
  x[1][3] = std::numeric_limits<double>::quiet_NaN();
  x[2][69] = std::numeric_limits<double>::infinity();
  x[3][20] = -std::numeric_limits<double>::infinity();
  // The mean of a row with an infinity is infinite, and NaN in the order in which ATen adds.
  const auto function = [](const Tensors& values) {
    const Tensors results = norm_of(values, {70}, true, true);
    return Tensors{results[0], results[2]};
  };
  expect_fused(function, {x, random({70}), random({70})});
}

TEST(ForwardRows, LayerNormOfTwoTypesIsATens) {
  at::manual_seed(4);
  const Tensors inputs{random({6, 20}).to(at::kBFloat16), random({20}).to(at::kFloat), random({20}).to(at::kFloat)};
  const auto function = [](const Tensors& values) {
    const auto [output, mean, rstd] = at::native_layer_norm(values[0] * 2, {20}, values[1], values[2], 1e-5);
    return Tensors{output, mean, rstd};
  };
  const Forward forward(function, inputs);
  EXPECT_THAT(forward.left(), testing::Contains("aten::native_layer_norm"));
  const Tensors ours = forward.run(inputs), stock = function(inputs);
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(ours[i], stock[i]));
}

TEST(ForwardRows, WhatStandsAroundANorm) {
  at::manual_seed(5);
  const auto function = [](const Tensors& values) {
    const at::Tensor dropped = at::gelu(values[0] + values[1]) * values[2] * 1.25;
    const at::Tensor sum = dropped.view({4, 6, 40}) + values[3];
    const auto [output, mean, rstd] = at::native_layer_norm(sum, {40}, values[4], values[5], 1e-5);
    return Tensors{sum, output, mean, rstd, at::silu(output).view({24, 40}), (rstd * 2).add(mean)};
  };
  const Tensors inputs{random({24, 40}), random({40}), at::rand({24, 40}) < 0.8, random({4, 6, 40}), random({40}), random({40})};
  expect_fused(function, inputs);
}

TEST(ForwardRows, TwoNormsBehindEachOther) {
  at::manual_seed(6);
  expect_fused(
      [](const Tensors& values) {
        const at::Tensor once = at::layer_norm(values[0] + 1, {24}, values[1], {});
        return Tensors{at::layer_norm(once * values[0], {24}, values[1], values[1])};
      },
      {random({10, 24}), random({24})});
}

// -- softmax

TEST(ForwardRows, Softmax) {
  for (const at::DimVector& sizes : {at::DimVector{9, 5, 31}, {1, 2}, {3, 7}, {2, 50001}, {500, 64}, {77}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    at::manual_seed(7);
    const Tensors inputs{random(sizes)};
    expect_fused([](const Tensors& values) { return Tensors{at::softmax(values[0] * 3, -1)}; }, inputs, {.units_in_double = 32});
    expect_fused([](const Tensors& values) { return Tensors{at::log_softmax(values[0] * 3, -1)}; }, inputs, {.units_in_double = 32});
  }
}

TEST(ForwardRows, SoftmaxOfScoresWithAMask) {
  at::manual_seed(8);
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  const at::Tensor hidden = at::rand({1, 1, 9, 33}) < 0.3;
  hidden[0][0][4].fill_(true);  // the whole row is masked
  const auto added = [](const Tensors& values) {
    const at::Tensor weights = at::softmax(values[0] * 0.125 + values[1], -1);
    return Tensors{weights, weights * values[2] * 1.25};
  };
  const auto filled = [=](const Tensors& values) {
    return Tensors{at::softmax((values[0] / 8).masked_fill(values[1], minus_infinity), -1)};
  };
  const at::Tensor scores = random({2, 3, 9, 33}) * 20;
  expect_fused(added, {scores, at::zeros({1, 1, 9, 33}, at::kDouble).masked_fill(hidden, minus_infinity), at::rand({2, 3, 9, 33}) < 0.9});
  expect_fused(filled, {scores, hidden});
}

TEST(ForwardRows, SoftmaxOfLargeNumbersAndNaN) {
  at::manual_seed(9);
  at::Tensor x = random({7, 40}) * 1e30;
  x[1][3] = std::numeric_limits<double>::quiet_NaN();
  x[2][39] = std::numeric_limits<double>::infinity();
  x[3].fill_(-std::numeric_limits<double>::infinity());
  x[4].fill_(2);
  for (const bool log : {false, true}) {
    expect_fused([log](const Tensors& values) { return Tensors{log ? at::log_softmax(values[0] + 1, 1) : at::softmax(values[0] + 1, 1)}; },
                 {x}, {.types = {at::kFloat, at::kDouble}});
  }
}

// A kernel works along the innermost dim.
TEST(ForwardRows, SoftmaxOverAnotherDimIsATens) {
  const auto function = [](const Tensors& values) { return Tensors{at::softmax(values[0] + 1, 0)}; };
  expect_fused(function, {random({90, 31})}, {.kernels = 0, .left = {"aten::add.Scalar", "aten::_softmax"}});
}

// -- reductions

TEST(ForwardRows, Reductions) {
  for (const at::DimVector& sizes : {at::DimVector{9, 5, 31}, {1, 2}, {500, 64}, {2, 30001}, {2, 3, 4, 100}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    for (const bool keepdim : {true, false}) {
      at::manual_seed(10);
      expect_fused(
          [=](const Tensors& values) {
            const at::Tensor x = values[0] * 2 + 1;
            return Tensors{x.mean(-1, keepdim), x.sum(-1, keepdim), x.amax(-1, keepdim), x.amin(-1, keepdim),
                           at::logsumexp(x, -1, keepdim)};
          },
          {random(sizes)});
    }
  }
}

TEST(ForwardRows, ReductionsOverLeadingDims) {
  at::manual_seed(11);
  for (const bool keepdim : {true, false}) {
    expect_fused(
        [=](const Tensors& values) {
          const at::Tensor x = at::tanh(values[0] * 2);
          return Tensors{x.sum(at::IntArrayRef{0, 1}, keepdim), x.amax({0, 1}, keepdim), x.amin({0, 1}, keepdim)};
        },
        {random({30, 20, 33})});
  }
}

TEST(ForwardRows, ReductionsOfWhatIsNoNumber) {
  at::manual_seed(12);
  at::Tensor x = random({6, 40});
  x[1][3] = std::numeric_limits<double>::quiet_NaN();
  x[2][39] = std::numeric_limits<double>::infinity();
  x[3].fill_(-std::numeric_limits<double>::infinity());
  expect_fused(
      [](const Tensors& values) {
        const at::Tensor y = values[0] + 1;
        return Tensors{y.mean(-1), y.amax(-1), y.amin(1, true), at::logsumexp(y, -1)};
      },
      {x});
}

// Later ops read a number of the row.
TEST(ForwardRows, ANormByHand) {
  at::manual_seed(13);
  expect_fused(
      [](const Tensors& values) {
        const at::Tensor scale = at::rsqrt(values[0].pow(2).mean(-1, true) + 1e-6);
        return Tensors{values[0] * scale * values[1], scale};
      },
      {random({4, 6, 32}), random({32})});
  expect_fused(
      [](const Tensors& values) {
        const at::Tensor centred = values[0] - values[0].mean(-1, true);
        return Tensors{centred / (centred.pow(2).mean(-1, true) + 1e-5).sqrt() * values[1]};
      },
      {random({40, 32}), random({32})});
}

// -- sizes

// A number per row is read and stored even if a row has no elements. An operand without elements has no memory.
TEST(ForwardRows, MayHaveNoElements) {
  const auto function = [](const Tensors& values) {
    return Tensors{values[0].square().sum(-1, true) * values[0], values[0].sum(-1, true) * 2 + values[1]};
  };
  at::manual_seed(15);
  const Tensors empty{random({5, 0}), random({5, 1})};
  const Forward captured_empty(function, as(empty, at::kFloat)),
      captured(function, as({random({5, 24}), random({5, 1})}, at::kFloat), SizesAre::Symbols);
  for (const Forward* forward : {&captured_empty, &captured}) {
    EXPECT_THAT(forward->left(), testing::IsEmpty());
    const Tensors ours = forward->run(as(empty, at::kFloat)), stock = function(as(empty, at::kFloat));
    EXPECT_EQ(ours[0].sizes(), stock[0].sizes());
    EXPECT_TRUE(ours[1].equal(stock[1])) << ours[1] << ", not " << stock[1];
  }
}

TEST(ForwardRows, SizesMayChange) {
  const auto function = [](const Tensors& values) {
    const auto [output, mean, rstd] = at::native_layer_norm(at::gelu(values[0] + values[1]), values[1].sizes(), values[1], values[1], 1e-5);
    const at::Tensor y = output + values[0];
    return Tensors{y, mean, rstd, at::softmax(y * 2, -1), at::log_softmax(y, -1), y.mean(-1, true), y.amax(-1)};
  };
  const auto symbolic = [](const Tensors& values) {
    const auto [output, mean, rstd] =
        at::native_layer_norm_symint(at::gelu(values[0] + values[1]), values[1].sym_sizes(), values[1], values[1], 1e-5);
    const at::Tensor y = output + values[0];
    return Tensors{y, mean, rstd, at::softmax(y * 2, -1), at::log_softmax(y, -1), y.mean(-1, true), y.amax(-1)};
  };
  at::manual_seed(14);
  const Forward forward(symbolic, as({random({5, 3, 24}), random({24})}, at::kFloat), SizesAre::Symbols);
  EXPECT_THAT(forward.left(), testing::IsEmpty());
  EXPECT_EQ(forward.kernels(), 1U);
  for (const at::DimVector& sizes : {at::DimVector{5, 3, 24}, {2, 7, 33}, {300, 2, 9}, {4, 3, 1500}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    const Tensors inputs{random(sizes), random({sizes[2]})};
    const Tensors given = as(inputs, at::kFloat);
    expect_near(forward.run(given), function(given), function(as(given, at::kDouble)));
  }
}

TEST(ForwardRows, OperandsThatLieElsewhereInMemory) {
  at::manual_seed(15);
  const auto function = [](const Tensors& values) {
    const at::Tensor x = values[0].slice(1, 2, 34) + values[1].expand({20, 32});
    return Tensors{at::layer_norm(x, {32}), at::softmax(x, -1), x.amax(-1)};
  };
  expect_fused(function, {random({20, 40}), random({20, 1})});
}

// A row of the tensor is a column in memory.
TEST(ForwardRows, RowsThatAreNoneInMemory) {
  at::manual_seed(16);
  const Function function = [](const Tensors& values) {
    const at::Tensor x = values[0].t() * 2;
    return Tensors{at::layer_norm(x, {32}), at::softmax(x, -1), at::logsumexp(x, -1), x.amax(-1), x.mean(-1), x.sum(-1)};
  };
  const Tensors inputs = as({random({32, 20})}, at::kFloat);
  expect_near(Forward(function, inputs).run(inputs), function(inputs), function(as(inputs, at::kDouble)));
}

TEST(ForwardRows, NoRowsNoColumnsAndOne) {
  for (const at::DimVector& sizes : {at::DimVector{0, 20}, {4, 0}, {4, 1}, {1, 1}}) {
    const Function function = [](const Tensors& values) {
      const at::Tensor x = values[0] * 2;
      return Tensors{at::layer_norm(x, {x.size(1)}), at::softmax(x, -1), x.mean(-1), at::logsumexp(x, -1)};
    };
    const Tensors inputs{at::randn(sizes)};
    const Tensors ours = Forward(function, inputs).run(inputs), stock = function(inputs);
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 0, 0, /*equal_nan=*/true)) << i;
  }
}

// -- ops per element

struct Activation {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> of;
};

std::vector<Activation> activations() {
  return {
      {"gelu", [](const at::Tensor& x) { return at::gelu(x); }},
      {"gelu by tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"relu", [](const at::Tensor& x) { return at::relu(x); }},
      {"silu", [](const at::Tensor& x) { return at::silu(x); }},
      {"elu", [](const at::Tensor& x) { return at::elu(x, 0.7); }},
      {"leaky_relu", [](const at::Tensor& x) { return at::leaky_relu(x, 0.1); }},
      {"hardtanh", [](const at::Tensor& x) { return at::hardtanh(x, -0.5, 0.7); }},
      {"relu6", [](const at::Tensor& x) { return at::relu6(x); }},
      {"hardswish", [](const at::Tensor& x) { return at::hardswish(x); }},
      {"softplus", [](const at::Tensor& x) { return at::softplus(x); }},
      {"mish", [](const at::Tensor& x) { return at::mish(x); }},
      {"sigmoid", [](const at::Tensor& x) { return at::sigmoid(x); }},
      {"tanh", [](const at::Tensor& x) { return at::tanh(x); }},
      {"where", [](const at::Tensor& x) { return at::where(x > 0, x, x * 3); }},
      {"masked_fill", [](const at::Tensor& x) { return x.masked_fill(x < 0, -1.5); }},
      {"a mask times a float", [](const at::Tensor& x) { return x * (x > 0.25) * 1.25; }},
      {"native_dropout_backward", [](const at::Tensor& x) { return at::native_dropout_backward(x, x > 0.25, 1.25); }},
  };
}

TEST(ForwardRows, Activations) {
  at::manual_seed(16);
  at::Tensor x = random({40, 33}) * 4;
  x[1][3] = std::numeric_limits<double>::quiet_NaN();
  x[2][31] = std::numeric_limits<double>::infinity();
  x[3][20] = -std::numeric_limits<double>::infinity();
  for (const Activation& activation : activations()) {
    SCOPED_TRACE(activation.name);
    expect_fused([&](const Tensors& values) { return Tensors{activation.of(values[0] + values[1]) * 2}; }, {x, random({33})},
                 {.types = {at::kFloat, at::kDouble}});
  }
}

TEST(ForwardRows, WritesInPlace) {
  at::manual_seed(17);
  const Tensors inputs{random({40, 33}), random({33})};
  const auto expect = [&](const Function& function) { expect_fused(function, inputs, {.types = {at::kFloat, at::kDouble}}); };
  expect([](const Tensors& values) {
    at::Tensor y = values[0].add(values[1]);
    return Tensors{y.relu_()};
  });
  expect([](const Tensors& values) {
    at::Tensor y = values[0] * 2;
    y.add_(values[1], 0.5).mul_(values[0]).sigmoid_().div_(3);
    return Tensors{y.tanh()};
  });
  expect([](const Tensors& values) {
    at::Tensor y = values[0] * 2;
    y.view({33, 40}).relu_();
    y.t().mul_(3);
    y.unsqueeze(0).transpose(0, 2).sub_(1);
    return Tensors{y + values[1]};
  });
  expect([](const Tensors& values) {  // a tensor that was read before
    at::Tensor y = values[0] * 2, before = y.exp();
    y.relu_();
    return Tensors{before, y};
  });
  expect([](const Tensors& values) {  // an input
    at::Tensor y = values[0];
    y.mul_(values[1]).add_(1);
    return Tensors{y.exp()};
  });
}

}  // namespace
}  // namespace hindcast::tests
