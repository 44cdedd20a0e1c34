// Compiled functions in several threads: also for ThreadSanitizer.

#include <hindcast/aot.h>
#include <hindcast/graph.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace hindcast::tests::threads_test {
namespace {

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }
at::Tensor function(const at::Tensor& a, const at::Tensor& b) { return (a * b).sin().exp(); }

void in_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
}

template <class Compiled>
void expect_like_eager(const Compiled& compiled, int rows, bool is_guarded, double tolerance) {
  const auto a = leaf({rows, 4}), b = leaf({4});
  std::optional<Guard> guard;
  if (is_guarded) guard.emplace(enable());
  const auto given = torch::autograd::grad({compiled(a, b).sum()}, {a, b});
  guard.reset();
  const auto expected = torch::autograd::grad({function(a, b).sum()}, {a, b});
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(given[i].allclose(expected[i], tolerance, tolerance)) << rows << ", " << i;
}

TEST(AotThreads, CallOneFunction) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  const auto f = aot_function(function, options);
  in_threads([&](int t) {
    for (int call = 0; call < 30; ++call) expect_like_eager(f, 2 + (call + t) % 3, false, 0);
  });
}

TEST(AotThreads, CallOneFunctionWhileItsKernelsAreMade) {
  for (const auto& how : {partition::standard, partition::min_cut}) {
    AotOptions options;
    options.partition = how;
    options.fw_compiler = options.bw_compiler = compilers::fused();
    const auto f = aot_function(function, options);
    in_threads([&](int t) {
      for (int call = 0; call < 30; ++call) expect_like_eager(f, 2 + (call + t) % 5, t % 2 == 0, 1e-5);
    });
    wait();
  }
}

// The gradient of sum() is expanded: it gets a program of its own, next to the one for contiguous gradients.
TEST(AotThreads, CallWhileTheBackwardOfAnotherIsMade) {
  std::function<void()> call;
  AotOptions options;
  options.async = false;
  options.bw_compiler = [&](const std::shared_ptr<const Graph>& graph, const std::vector<at::Tensor>&) -> ProgramFunction {
    if (const auto once = std::exchange(call, nullptr)) std::thread(once).join();
    return [graph](const std::vector<at::Tensor>& inputs) { return run_program(*graph, inputs); };
  };
  for (const bool is_guarded : {false, true}) {
    const auto f = aot_function(function, options);
    int calls = 0;
    call = [&] {
      expect_like_eager(f, 3, is_guarded, 1e-5);
      ++calls;
    };
    for (int i = 0; i < 3; ++i) expect_like_eager(f, 3, is_guarded, 1e-5);
    EXPECT_EQ(calls, 1);
  }
}

TEST(AotThreads, LookAtProgramsAndForgetThemWhileOthersCall) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  auto f = aot_function(function, options);
  in_threads([&](int t) {
    for (int call = 0; call < 30; ++call) {
      if (t != 0) {
        expect_like_eager(f, 2 + call % 2, t == 1, 1e-5);
      } else if (call % 3 == 0) {
        f.reset();
        hindcast::reset();
      } else {
        for (const auto& programs : f.core().programs()) EXPECT_FALSE(programs.forward->print().empty());
        EXPECT_GE(f.stats().calls, f.stats().hits);
      }
    }
  });
}

}  // namespace
}  // namespace hindcast::tests::threads_test
