// Steps of several threads at once, each with an optimizer of its own.

#include <gtest/gtest.h>
#include <hindcast/hindcast.h>
#include <hindcast/optim.h>
#include <torch/torch.h>

#include <thread>
#include <vector>

#include "tests/optim/optimizers.h"

namespace hindcast::tests {
namespace {

Tensors parameters_of(uint64_t seed) {
  at::manual_seed(seed);
  return {at::randn({33, 17}).requires_grad_(), at::randn({5}).requires_grad_(), at::randn({2000}).requires_grad_()};
}

TEST(OptimThreads, EachWithItsOwnOptimizer) {
  constexpr int kSteps = 12;
  const auto& forms = optimizer_forms();
  std::vector<Tensors> ours, gradients;
  for (size_t i = 0; i < forms.size(); ++i) {
    ours.push_back(parameters_of(i));
    gradients.push_back(parameters_of(100 + i));
  }
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (size_t i = first; i < forms.size(); i += 4) {
        const auto optimizer = forms[i].make(ours[i]);
        auto step = compiled_step(*optimizer, ClipGradNorm{1.0});
        for (int n = 0; n < kSteps; ++n) {
          set_gradients(ours[i], gradients[i]);
          step();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(forms[i].name);
    const Tensors stock = parameters_of(i);
    const auto optimizer = forms[i].make(stock);
    for (int n = 0; n < kSteps; ++n) {
      set_gradients(stock, gradients[i]);
      torch::nn::utils::clip_grad_norm_(stock, 1.0);
      optimizer->step();
    }
    for (size_t p = 0; p < stock.size(); ++p)
      EXPECT_TRUE(at::allclose(ours[i][p], stock[p], 1e-4, 1e-5)) << (ours[i][p] - stock[p]).abs().max();
  }
}

// A parameter belongs to one optimizer, and steps of one thread: others only read settings that they share.
TEST(OptimThreads, BackwardsThatStep) {
  std::vector<std::thread> threads;
  std::vector<Tensors> ours;
  for (uint64_t i = 0; i < 4; ++i) ours.push_back(parameters_of(i));
  for (Tensors& parameters : ours) {
    threads.emplace_back([&parameters] {
      torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1));
      const auto in_backward = step_in_backward(optimizer);
      const auto guard = enable();
      for (int n = 0; n < 10; ++n) (parameters[0].sin().sum() + parameters[1].square().sum() + parameters[2].cos().sum()).backward();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensors stock = parameters_of(i);
    torch::optim::SGD optimizer(stock, torch::optim::SGDOptions(0.1));
    for (int n = 0; n < 10; ++n) {
      optimizer.zero_grad();
      (stock[0].sin().sum() + stock[1].square().sum() + stock[2].cos().sum()).backward();
      optimizer.step();
    }
    for (size_t p = 0; p < stock.size(); ++p) EXPECT_TRUE(at::allclose(ours[i][p], stock[p], 1e-4, 1e-5));
  }
}

}  // namespace
}  // namespace hindcast::tests
