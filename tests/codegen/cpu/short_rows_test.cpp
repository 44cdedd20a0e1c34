// Rows of a few elements: vectors over rows, and what picks one column of each.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Beside whole blocks of 64 rows: none, one, one less and one more.
const std::vector<at::DimVector> kSizes = {{1, 2}, {63, 3}, {65, 15}, {130, 2}, {3, 43, 4}, {200, 7}};

void expect_near_eager(const Function& function, const Tensors& inputs) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(type));
    const Tensors given = as(inputs, type);
    const ForwardProgram program(function, given);
    EXPECT_EQ(program.left(), Names{});
    const Tensors stock = function(given);
    expect_near(program.run(given), stock, type == at::kDouble ? stock : function(as(given, at::kDouble)));
  }
}

TEST(ShortRows, SoftmaxAndReductions) {
  for (const at::DimVector& sizes : kSizes) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    const Tensors given = {at::randn(sizes, at::kDouble), at::rand(sizes, at::kDouble) + 0.5};
    expect_near_eager([](const Tensors& in) { return Tensors{(in[0] * 2).log_softmax(-1) * in[1]}; }, given);
    expect_near_eager([](const Tensors& in) { return Tensors{(in[0] * 2).softmax(-1) * in[1].amax({-1}, true)}; }, given);
    expect_near_eager([](const Tensors& in) { return Tensors{(in[0] * in[1]).logsumexp({-1}) * 0.5, in[1].amin({-1}).exp()}; }, given);
    expect_near_eager([](const Tensors& in) { return Tensors{in[1].sum(-1).log() * 2, in[1] / in[1].sum(-1, true)}; }, given);
  }
}

TEST(ShortRows, SumsOverRowsBesideSumsOfRows) {
  for (const at::DimVector& sizes : {at::DimVector{64, 2}, {130, 3}, {1000, 4}}) {
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = near_leaf(sizes, options), bias = near_leaf({sizes[1]}, options);
      const auto log_probs = (x + bias).log_softmax(1);
      (log_probs.exp() * log_probs).sum(1).tanh().sum().backward();
      return std::vector{x.grad(), bias.grad()};
    });
  }
}

TEST(ShortRows, Norms) {
  for (const at::DimVector& sizes : kSizes) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    if (sizes.back() < 3) continue;  // of two numbers, a norm has hardly any gradient
    const auto function = [&](const Tensors& in) { return Tensors{at::layer_norm(in[0] * 2 + 5, {sizes.back()}, in[1], in[2]) * 3}; };
    expect_near_eager(function,
                      {at::randn(sizes, at::kDouble), at::randn(sizes.back(), at::kDouble), at::randn(sizes.back(), at::kDouble)});
  }
}

TEST(ShortRows, Angles) {
  const auto function = [](const Tensors& in) { return Tensors{(in[0].sin() * in[1]).softmax(-1), in[1].cos().sum(-1)}; };
  expect_near_eager(function, {at::randn({70, 3}, at::kDouble) * 1e5, at::randn({70, 3}, at::kDouble)});
}

// Without sums: each number is repeated, so that the loop goes through many rows.
TEST(ShortRows, NumbersOfRowsInPointwiseOps) {
  for (const at::DimVector& sizes : {at::DimVector{1, 2}, {500, 3}, {6, 50, 7}, {2000, 15}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    at::DimVector of_rows = sizes;
    of_rows.back() = 1;
    const Tensors given = {at::randn(sizes, at::kDouble), at::rand(of_rows, at::kDouble) + 0.5, at::randn(sizes.back(), at::kDouble)};
    expect_near_eager([](const Tensors& in) { return Tensors{(in[0] / in[1] + in[2]).tanh() * in[1]}; }, given);
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf(sizes, options), of_row = near_leaf(of_rows, options);
          (x * of_row.exp() + x).tanh().sum().backward();
          return std::vector{x.grad(), of_row.grad()};
        },
        {.units_in_double = 8});
  }
}

TEST(ShortRows, TransposedRows) {
  const Function function = [](const Tensors& in) { return Tensors{(in[0] * 2).softmax(-1) * in[1]}; };
  const Tensors given = {at::randn({5, 70}).t(), at::randn({70, 10}).slice(1, 0, 10, 2)};
  expect_near(ForwardProgram(function, given).run(given), function(given), function(as(given, at::kDouble)));
}

TEST(ShortRows, NanAndInfinities) {
  const Function function = [](const Tensors& in) {
    return Tensors{(in[0] * 1).softmax(-1) * 3, in[0].amax({-1}) + 1, in[0].amin({-1}) + 1};
  };
  const at::Tensor odd = at::randn({70, 3});
  odd[3][1] = std::numeric_limits<float>::quiet_NaN();
  odd[64][0] = kInfinity;
  odd[65][2] = -kInfinity;
  odd[66].fill_(-kInfinity);
  const Tensors ours = ForwardProgram(function, {odd}).run({odd}), stock = function({odd});
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-5, 1e-6, /*equal_nan=*/true)) << i;
}

TEST(ShortRows, OfSizesThatChange) {
  const Function function = [](const Tensors& in) { return Tensors{(in[0] * 2).log_softmax(-1) + 1}; };
  const ForwardProgram program(function, {at::randn({6, 3})}, SizesAre::Symbols);
  EXPECT_EQ(program.left(), Names{});
  for (const at::DimVector& sizes : {at::DimVector{6, 3}, {200, 15}, {200, 16}, {3, 5000}, {1, 1}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    const Tensors given = {at::randn(sizes)};
    expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
  }
}

// ---- one column of each row

at::Tensor indices(at::IntArrayRef sizes, int64_t columns) { return at::randint(columns, sizes, at::kLong); }

TEST(ShortRows, Gather) {
  for (const at::DimVector& sizes : kSizes) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    at::DimVector of_rows = sizes;
    of_rows.back() = 1;
    const at::Tensor index = indices(of_rows, sizes.back());
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf(sizes, options);
          (x.log_softmax(-1).gather(-1, index).squeeze(-1) * 2).exp().sum().backward();
          return std::vector{x.grad()};
        },
        {.units_in_double = 8});
    const Function function = [](const Tensors& in) { return Tensors{(in[0] * 2).gather(-1, in[1]) * 3}; };
    const Tensors given = {at::randn(sizes), index};
    const ForwardProgram program(function, given);
    EXPECT_EQ(program.left(), Names{});
    expect_near(program.run(given), function(given), function({given[0].to(at::kDouble), index}));
  }
}

TEST(ShortRows, GatherAlongAnotherDim) {
  const Function function = [](const Tensors& in) { return Tensors{(in[0] * 2).gather(0, in[1]) * 3}; };
  const Tensors given = {at::randn({5, 70}), indices({1, 70}, 5)};
  expect_near(ForwardProgram(function, given).run(given), function(given), function({given[0].to(at::kDouble), given[1]}));
}

TEST(ShortRows, ScatterAdd) {
  const Function function = [](const Tensors& in) {
    return Tensors{at::scatter_add(in[0] * 2, 1, in[1], in[2].exp()).sigmoid(), at::zeros({70, 3}).scatter_add_(1, in[1], in[2]) * 2};
  };
  const Tensors given = {at::randn({70, 3}), indices({70, 1}, 3), at::randn({70, 1})};
  const ForwardProgram program(function, given);
  EXPECT_EQ(program.left(), Names{"aten::zeros"});
  const Tensors stock = function(given);
  expect_near(program.run(given), stock, stock);
}

TEST(ShortRows, PicksAndAddsKeepSpecialValues) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x = at::tensor({-0.0F, 0.0F, kNan, kInfinity, -kInfinity, -1.0F}).repeat({6, 1}), index = at::arange(6).unsqueeze(1);
  const Function function = [](const Tensors& in) {
    const at::Tensor picked = in[0].gather(1, in[1]), added = in[0].scatter_add(1, in[1], in[2]);
    return Tensors{picked, at::copysign(at::ones_like(picked), picked), added, at::copysign(at::ones_like(added), added)};
  };
  const Tensors given = {x, index, at::full({6, 1}, -0.0F)}, seen = ForwardProgram(function, given).run(given), stock = function(given);
  for (size_t i = 0; i < stock.size(); ++i) {
    const at::Tensor is_same = (seen[i] == stock[i]).logical_or(stock[i].isnan().logical_and(seen[i].isnan()));
    const bool is_of_sign = i % 2 == 1;  // of a NaN, a sign says nothing
    EXPECT_TRUE((is_of_sign ? is_same.logical_or(stock[i - 1].isnan()) : is_same).all().item<bool>()) << seen[i] << "\nstock:\n"
                                                                                                      << stock[i];
  }
}

// More indices than one for a row, or longer rows: a kernel would read all columns.
TEST(ShortRows, OtherGathersAreLeftToAten) {
  const Function function = [](const Tensors& in) { return Tensors{(in[0] * 2).gather(1, in[1]) * 3}; };
  for (const Tensors& given : {Tensors{at::randn({70, 3}), indices({70, 2}, 3)},
                               {at::randn({70, 3}), indices({69, 1}, 3)},
                               {at::randn({70, 20}), indices({70, 1}, 20)}}) {
    const ForwardProgram program(function, given);
    EXPECT_THAT(program.left(), testing::Contains("aten::gather"));
    expect_near(program.run(given), function(given), function({given[0].to(at::kDouble), given[1]}));
  }
}

// The gradient of a policy: numbers per row are computed in the kernel of the rows, though no sum of a row is among their operands.
TEST(ShortRows, NumbersOfRowsJoin) {
  for (const at::DimVector& sizes : kSizes) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    at::DimVector of_rows = sizes;
    of_rows.pop_back();
    const Function function = [](const Tensors& in) {
      const at::Tensor probabilities = in[0].softmax(-1), of_row = ((in[1] * 0.5).exp() / 3).where(in[2] > 0, in[1] - in[2]);
      const at::Tensor gradient = of_row.unsqueeze(-1) * probabilities.log();
      return Tensors{gradient - gradient.sum(-1, true), of_row};
    };
    const Tensors given = {at::randn(sizes), at::randn(of_rows), at::randn(of_rows)};
    const ForwardProgram program(function, given);
    EXPECT_EQ(program.left(), Names{});
    EXPECT_EQ(program.kernels(), 1);
    expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
  }
}

TEST(ShortRows, NumbersOfRowsOfAnotherShapeJoin) {
  const Function function = [](const Tensors& in) {
    const at::Tensor of_row = in[1].t() * 2 + in[2].flatten(0, 1).unsqueeze(0).sigmoid();
    return Tensors{in[0].softmax(-1) * of_row.reshape({5, 14, 1})};
  };
  const Tensors given = {at::randn({5, 14, 3}), at::randn({70, 1}), at::randn({5, 14})};
  const ForwardProgram program(function, given);
  expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
}

// ATen takes 0 and -1 as the dim of a tensor without dimensions.
TEST(ShortRows, TensorsWithoutDimensions) {
  const Tensors given = {at::scalar_tensor(0.5), at::zeros({}, at::kLong), at::scalar_tensor(2.0)};
  for (const int64_t dim : {0, -1}) {
    SCOPED_TRACE(dim);
    const Function function = [dim](const Tensors& in) {
      const at::Tensor doubled = in[0] * 2;
      return Tensors{doubled.gather(dim, in[1]) * 3, at::scatter_add(doubled, dim, in[1], in[2]).sigmoid(), doubled.softmax(dim) * 3,
                     doubled.log_softmax(dim) - 1, doubled.logsumexp(dim) * 2};
    };
    expect_near(ForwardProgram(function, given).run(given), function(given), function(given));
  }
}

TEST(ShortRows, IndicesOutOfBounds) {
  const Function gather = [](const Tensors& in) { return Tensors{(in[0] * 2).gather(1, in[1]) * 3}; };
  const Function scatter = [](const Tensors& in) { return Tensors{at::scatter_add(in[0] * 2, 1, in[1], in[0].sum(1, true)) * 3}; };
  const Tensors given = {at::randn({70, 3}), indices({70, 1}, 3)};
  for (const Function& function : {gather, scatter}) {
    const ForwardProgram program(function, given);
    EXPECT_EQ(program.left(), Names{});
    for (const int64_t index : {int64_t{3}, int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      Tensors wrong = {given[0], given[1].clone()};
      wrong[1][69][0] = index;
      EXPECT_THROW(function(wrong), c10::Error);
      EXPECT_THROW(program.run(wrong), c10::Error);
    }
    expect_near(program.run(given), function(given), function({given[0].to(at::kDouble), given[1]}));
  }
}

}  // namespace
}  // namespace hindcast::tests
