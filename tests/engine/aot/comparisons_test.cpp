// equal() and allclose() inside a function: checked again in each call, as numbers are.

#include "tests/engine/aot/aot_grads.h"

#include <limits>

namespace hindcast::tests::comparisons_test {
namespace {

TEST(Comparisons, EqualIsAskedInEachCall) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b) ? a * 2 : a * b; };
  const auto f = aot_function(function, exact_programs());
  const auto nan = torch::full({3}, std::numeric_limits<double>::quiet_NaN(), torch::kFloat);
  const auto x = torch::ones({3}), y = torch::zeros({3});
  for (int round = 0; round < 3; ++round) {
    for (const auto& [a, b] : {std::pair(x, x), std::pair(x, x.clone()), std::pair(x, y), std::pair(nan, nan), std::pair(y, -y)}) {
      const auto leaf = a.clone().requires_grad_();
      const at::Tensor other = a.is_same(b) ? leaf : b;
      const auto of = [&](auto&& g) {
        const at::Tensor result = g(leaf, other);
        return result.defined() ? torch::autograd::grad({result.sum()}, {leaf})[0] : at::Tensor();
      };
      EXPECT_TRUE(are_equal_with_nan(of(f), of(function)));
    }
  }
  EXPECT_GT(f.stats().hits, 0U);
  EXPECT_GT(f.stats().numbers_differed, 0U);
}

TEST(Comparisons, EqualOfOtherSizesIsDecidedByThem) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b) ? a * 2 : a.sum() * b; };
  const auto f = aot_function(function, exact_programs());
  for (int round = 0; round < 2; ++round) {
    for (int64_t n = 2; n < 7; ++n) {
      for (const int64_t other : {n, n + 1}) {
        const auto a = torch::ones({n}).requires_grad_(), b = torch::ones({other});
        EXPECT_TRUE(torch::autograd::grad({f(a, b).sum()}, {a})[0].equal(torch::autograd::grad({function(a, b).sum()}, {a})[0])) << n;
      }
    }
  }
}

TEST(Comparisons, AllCloseIsAskedInEachCall) {
  const auto function = [](const at::Tensor& a, double scale) { return at::allclose(a, torch::ones({3}), 0.1) ? a * scale : a.exp(); };
  const auto f = aot_function(function, exact_programs());
  for (int round = 0; round < 3; ++round) {
    for (const double value : {1.0, 1.05, 2.0}) {
      const auto a = torch::full({3}, value, torch::kFloat).requires_grad_();
      EXPECT_TRUE(torch::autograd::grad({f(a, 3.0).sum()}, {a})[0].equal(torch::autograd::grad({function(a, 3.0).sum()}, {a})[0])) << value;
    }
  }
  EXPECT_GT(f.stats().hits, 0U);
}

TEST(Comparisons, AllCloseBroadcasts) {
  const auto function = [](const at::Tensor& a) { return at::allclose(a.relu(), torch::zeros({})) ? a + 1 : a - 1; };
  const auto f = aot_function(function, exact_programs());
  for (const double value : {-1.0, 1.0, -2.0, 2.0}) {
    const auto a = torch::full({4}, value);
    EXPECT_TRUE(f(a).equal(function(a))) << value;
  }
}

// `equal(query, key)` decides how LibTorch's own attention projects.
TEST(Comparisons, MultiheadAttentionRunsByPrograms) {
  torch::manual_seed(1);
  torch::nn::MultiheadAttention module(8, 2);
  const auto run = [&](const at::Tensor& q, const at::Tensor& k) { return std::get<0>(module->forward(q, k, k)); };
  const auto f = aot_function(run, exact_programs());
  for (int call = 0; call < 5; ++call) {
    for (const bool is_self : {true, false}) {
      const auto q = torch::randn({5, 2, 8}).requires_grad_();
      const auto k = is_self ? q : torch::randn({5, 2, 8});
      const auto given = torch::autograd::grad({f(q, k).sum()}, {q, module->in_proj_weight});
      const auto expected = torch::autograd::grad({run(q, k).sum()}, {q, module->in_proj_weight});
      EXPECT_TRUE(given[0].equal(expected[0]) && given[1].equal(expected[1])) << call << is_self;
    }
  }
  EXPECT_GE(f.stats().hits, 4U);
  EXPECT_EQ(f.stats().eager, f.stats().numbers_differed);
}

TEST(Comparisons, ATransformerEncoderRunsByPrograms) {
  torch::manual_seed(1);
  torch::nn::TransformerEncoder module(
      torch::nn::TransformerEncoderOptions(torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0), 2));
  const auto f = aot_function([&](const at::Tensor& x) { return module->forward(x); }, exact_programs());
  for (int call = 0; call < 4; ++call) {
    const auto x = torch::randn({5, 2, 8}).requires_grad_();
    const auto given = torch::autograd::grad({f(x).pow(2).sum()}, {x})[0];
    EXPECT_TRUE(given.equal(torch::autograd::grad({module->forward(x).pow(2).sum()}, {x})[0])) << call;
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

}  // namespace
}  // namespace hindcast::tests::comparisons_test
