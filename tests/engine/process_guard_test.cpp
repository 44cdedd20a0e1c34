// enable_process() and other sources of backwards: LibTorch's own threads, and functions compiled ahead of time.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <optional>

#include "hindcast/aot.h"
#include "hindcast/hindcast.h"

namespace hindcast::tests::process_guard_test {
namespace {

uint64_t all_calls(const Stats& stats) {
  uint64_t calls = stats.backwards;
  for (const auto& [reason, count] : stats.fallbacks_by_reason) calls += count;
  return calls;
}

Options without_back_off() {
  Options options;
  options.compiler = compilers::eager();
  options.back_off = false;
  return options;
}

TEST(ProcessGuard, TakesOverThreadsOfLibTorchsPool) {
  hindcast::reset();
  const ProcessGuard guard = hindcast::enable_process(without_back_off());
  constexpr int64_t kTasks = 64;
  at::parallel_for(0, kTasks, 1, [](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const at::AutoGradMode grad_mode(true);
      const auto x = at::ones({4}).set_requires_grad(true);
      (x * static_cast<double>(i)).sum().backward();
      EXPECT_TRUE(x.grad().equal(at::full({4}, static_cast<double>(i))));
    }
  });
  EXPECT_EQ(hindcast::stats().backwards, static_cast<uint64_t>(kTasks));
}

TEST(ProcessGuard, LeavesABackwardInAHookToTheStockEngine) {
  hindcast::reset();
  const ProcessGuard guard = hindcast::enable_process(without_back_off());
  const auto x = at::ones({4}).set_requires_grad(true), y = at::ones({4}).set_requires_grad(true);
  x.register_hook([&](const at::Tensor& gradient) {
    const at::AutoGradMode grad_mode(true);
    (y * 3).sum().backward();
    return gradient * 2;
  });
  (x * 5).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({4}, 10.0)));
  EXPECT_TRUE(y.grad().equal(at::full({4}, 3.0)));
  EXPECT_EQ(hindcast::stats().fallbacks_by_reason.at("InsideHook"), 1U);
}

TEST(ProcessGuard, AFunctionThatIsTracedMayEndTheThreadsGuard) {
  const ProcessGuard guard = hindcast::enable_process(without_back_off());
  auto own = std::make_unique<Guard>(hindcast::enable(without_back_off()));
  const auto function = aot_function([&own](const at::Tensor& x) {
    own.reset();
    return x * 2;
  });
  const auto x = at::ones({4}).set_requires_grad(true);
  const at::Tensor y = function(x).sum();
  hindcast::reset();
  y.backward();
  EXPECT_TRUE(x.grad().equal(at::full({4}, 2.0)));
  EXPECT_EQ(hindcast::stats().backwards, 1U) << "by the guard of the process";
}

// While the function is traced, the inner gradient is part of it and not a separate backward.
TEST(ProcessGuard, CountsOfFunctionsAheadOfTimeAreThoseOfAThreadsGuard) {
  const auto calls_of = [](bool of_process) {
    hindcast::reset();
    std::optional<Guard> own;
    std::optional<ProcessGuard> process;
    if (of_process) {
      process.emplace(hindcast::enable_process(without_back_off()));
    } else {
      own.emplace(hindcast::enable(without_back_off()));
    }
    const auto function = aot_function([](const at::Tensor& x) {
      const auto leaf = x.detach().requires_grad_(true);
      return x * torch::autograd::grad({(leaf * leaf).sum()}, {leaf})[0];
    });
    const auto x = at::full({4}, 3.0).set_requires_grad(true);
    for (int call = 0; call < 3; ++call) {
      x.mutable_grad() = at::Tensor();
      function(x).sum().backward();
      EXPECT_TRUE(x.grad().equal(at::full({4}, 6.0)));
    }
    return all_calls(hindcast::stats());
  };
  EXPECT_EQ(calls_of(/*of_process=*/true), calls_of(/*of_process=*/false));
}

}  // namespace
}  // namespace hindcast::tests::process_guard_test
