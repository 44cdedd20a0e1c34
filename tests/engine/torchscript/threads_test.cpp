// Two threads call one module.

#include "tests/engine/aot/aot_grads.h"
#include "tests/engine/torchscript/script_modules.h"

#include <hindcast/jit.h>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

TEST(JitThreads, ShareAModule) {
  const auto compiled = aot_module(script_module(kMlp), exact_programs());
  const auto expected = script_module(kMlp).forward({rows(5)}).toTensor();
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      auto guard = enable(compilers::eager());
      for (int i = 0; i < 20; ++i) {
        const auto x = torch::zeros({5, 8}).add_(1).requires_grad_();
        compiled({x}).toTensor().backward();
        EXPECT_TRUE(x.grad().defined());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(torch::equal(compiled({rows(5)}).toTensor(), expected));
}

}  // namespace
}  // namespace hindcast::tests
