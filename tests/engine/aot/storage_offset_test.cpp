// Where in its storage a tensor begins.

#include "tests/engine/aot/aot_grads.h"

namespace hindcast::tests::storage_offset_test {
namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

// No guard compares it: a batch that is a slice of a data set begins elsewhere in each call.
TEST(StorageOffset, OneThatIsReadIsSeen) {
  const auto data = torch::arange(64, torch::kFloat);
  const std::vector<std::pair<Function, bool>> functions = {
      {[](const at::Tensor& x) { return x * static_cast<double>(x.storage_offset() + 1); }, false},
      {[](const at::Tensor& x) {
         return x.as_strided({2, 2}, {2, 1}, 8) * 2;
       },
       false},
      {[](const at::Tensor& x) {
         return (x * 1).slice(0, 2, 8).as_strided({2, 2}, {2, 1}) * 2;
       },
       true},
      {[](const at::Tensor& x) {
         return at::avg_pool1d(x.view({1, 2, 8}), 2);
       },
       true},
  };
  for (size_t k = 0; k < functions.size(); ++k) {
    const auto& [function, is_program] = functions[k];
    const auto f = aot_function([&, function = function](const at::Tensor& x) { return function(x); }, exact_programs());
    for (const int64_t start : {4, 0, 8, 4}) {
      const auto x = data.slice(0, start, start + 16).detach();
      const auto of = [&](const Function& g) {
        const auto leaf = x.detach().requires_grad_();
        const auto y = g(leaf);
        return std::pair(y.detach(), torch::autograd::grad({y.square().sum()}, {leaf})[0]);
      };
      const auto given = of(std::ref(f)), expected = of(function);
      EXPECT_TRUE(given.first.equal(expected.first) && given.second.equal(expected.second)) << k << ", from " << start;
    }
    EXPECT_EQ(f.stats().hits, is_program ? 3U : 0U) << k;
  }
}

// An explicit offset counts from the start of the storage, wherever the argument begins.
TEST(StorageOffset, AnExplicitOneOfAWrittenView) {
  const std::vector<Function> functions = {
      [](const at::Tensor& x) {
        x.as_strided({2, 2}, {5, 1}, 11).mul_(2);
        return x.square();
      },
      [](const at::Tensor& x) {
        x.slice(0, 1).as_strided({2, 2}, {5, 1}, x.storage_offset() + 6).mul_(3);
        return x.square();
      },
      [](const at::Tensor& x) {
        x.fill_diagonal_(2);
        return x.square();
      },
      [](const at::Tensor& x) {
        x.slice(1, 1).fill_diagonal_(2);
        return x.square() + x.as_strided({2, 2}, {5, 1}, 11).sum();
      },
  };
  const auto cuts = {+[](const at::Tensor& x) { return x.slice(0, 1, 5); }, +[](const at::Tensor& x) { return x.slice(1, 1, 4); },
                     +[](const at::Tensor& x) { return x.t().slice(0, 1, 5); }};
  for (size_t k = 0; k < functions.size(); ++k) {
    for (const auto& cut : cuts) {
      const auto f = aot_function([&](const at::Tensor& x) { return functions[k](x); }, exact_programs());
      for (int call = 0; call < 3; ++call) {
        const auto of = [&](const Function& g) {
          const auto leaf = torch::arange(30, torch::kFloat).view({6, 5}).requires_grad_();
          const auto whole = leaf * 1;
          const auto y = g(cut(whole));
          (y.sum() + whole.sin().sum()).backward();
          return std::vector<at::Tensor>{y.detach(), whole.detach(), leaf.grad()};
        };
        const auto given = of(std::ref(f)), expected = of(functions[k]);
        // Not equal(): the gradient of `whole` is the same sum in another order.
        for (size_t i = 0; i < given.size(); ++i) EXPECT_TRUE(given[i].allclose(expected[i], 1e-6)) << k << ", call " << call << ", " << i;
      }
    }
  }
}

TEST(StorageOffset, OneDimensionalPoolsServeOtherSizes) {
  const auto f = aot_function(
      [](const at::Tensor& x) { return at::adaptive_avg_pool1d(at::avg_pool1d(x, 2), 3) + at::max_pool1d(x, 2).sum(); }, exact_programs());
  for (const int64_t n : {2, 3, 4, 5, 2, 3, 4, 5}) {
    const auto x = torch::randn({n, 3, 12}).requires_grad_();
    const auto y = at::adaptive_avg_pool1d(at::avg_pool1d(x, 2), 3) + at::max_pool1d(x, 2).sum();
    EXPECT_TRUE(torch::autograd::grad({f(x).sum()}, {x})[0].equal(torch::autograd::grad({y.sum()}, {x})[0])) << n;
  }
  EXPECT_EQ(f.stats().eager, 0U);
}

}  // namespace
}  // namespace hindcast::tests::storage_offset_test
