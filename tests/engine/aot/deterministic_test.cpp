// Options::deterministic of the guard that a function is called under: equal inputs give equal bits, also if programs have kernels.

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace hindcast::tests::deterministic_aot_test {
namespace {

// Kernels round its norms, long sums and transcendental functions differently from ATen.
at::Tensor function(const at::Tensor& x) { return (x.sin() * x.exp()).log_softmax(-1).mean() + x.tanh().square().sum(); }

at::Tensor input() {
  torch::manual_seed(3);
  return torch::randn({40, 333}).requires_grad_();
}

AotOptions with_kernels() {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  return options;
}

Options engine_options(bool deterministic) {
  Options options;
  options.compiler = compilers::fused();
  options.deterministic = deterministic;
  options.async = false;
  return options;
}

template <class Function>
std::pair<at::Tensor, at::Tensor> step(const Function& f) {
  const auto x = input();
  const at::Tensor y = f(x);
  y.backward();
  return {y.detach(), x.grad()};
}

TEST(FunctionUnderADeterministicGuard, GivesEqualBitsInEachCall) {
  const auto stock = step(function);
  const auto f = aot_function(function, with_kernels());
  for (int call = 0; call < 4; ++call) {
    const auto guard = enable(engine_options(true));
    const auto ours = step(f);
    EXPECT_TRUE(ours.first.equal(stock.first)) << call;
    EXPECT_TRUE(ours.second.equal(stock.second)) << call;
  }
  EXPECT_EQ(f.stats().hits, 3U);
}

TEST(FunctionUnderADeterministicGuard, GivesThemBesideCallsThatDoNotAskForThem) {
  const auto stock = step(function);
  const auto f = aot_function(function, with_kernels());
  for (int call = 0; call < 4; ++call) {
    step(f);
    const auto guard = enable(engine_options(call % 2 == 0));
    const auto ours = step(f);
    if (call % 2 == 1) continue;
    EXPECT_TRUE(ours.first.equal(stock.first)) << call;
    EXPECT_TRUE(ours.second.equal(stock.second)) << call;
  }
  EXPECT_EQ(f.stats().traces, 2U);
  EXPECT_EQ(f.stats().hits, 6U);
}

// The backward for another set of results is traced where no guard can be consulted.
TEST(FunctionUnderADeterministicGuard, GivesThemForOtherResultsToo) {
  const auto both = [](const at::Tensor& x) { return std::pair(function(x), (x * x.sigmoid()).log_softmax(-1).mean()); };
  const auto gradient = [](const auto& f, bool second) {
    const auto x = input();
    const auto [first, other] = f(x);
    (second ? other : first).backward();
    return x.grad();
  };
  const auto f = aot_function(both, with_kernels());
  for (int call = 0; call < 8; ++call) {
    const auto guard = enable(engine_options(true));
    const bool second = call / 2 % 2 == 1;
    EXPECT_TRUE(gradient(f, second).equal(gradient(both, second))) << call;
  }
}

}  // namespace
}  // namespace hindcast::tests::deterministic_aot_test
