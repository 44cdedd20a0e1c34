// Steps of several threads at once, each with an optimizer of its own.

#include <gtest/gtest.h>
#include <hindcast/hindcast.h>
#include <hindcast/optim.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors& parameters)>;

template <class Optimizer, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const Tensors& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}

const std::vector<MakeOptimizer>& makers() {
  static const std::vector<MakeOptimizer> all = {
      maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true)),
      maker<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)), maker<torch::optim::SGD>(torch::optim::SGDOptions(0.01).momentum(0.9)),
      maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01)), maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.01))};
  return all;
}

Tensors parameters_of(uint64_t seed) {
  at::manual_seed(seed);
  return {at::randn({33, 17}).requires_grad_(), at::randn({5}).requires_grad_(), at::randn({2000}).requires_grad_()};
}

at::Tensor loss_of(const Tensors& parameters) {
  return parameters[0].sin().sum() + parameters[1].square().sum() + parameters[2].cos().sum();
}

void expect_close(const Tensors& ours, const Tensors& stock) {
  for (size_t p = 0; p < stock.size(); ++p) EXPECT_TRUE(at::allclose(ours[p], stock[p], 1e-4, 1e-5)) << (ours[p] - stock[p]).abs().max();
}

template <class Body>
void in_threads(size_t count, const Body& body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(OptimThreads, EachWithItsOwnOptimizer) {
  constexpr int kSteps = 12;
  std::vector<Tensors> ours;
  for (size_t i = 0; i < makers().size(); ++i) ours.push_back(parameters_of(i));
  in_threads(ours.size(), [&](size_t i) {
    const auto optimizer = makers()[i](ours[i]);
    auto step = compiled_step(*optimizer, ClipGradNorm{1.0});
    for (int n = 0; n < kSteps; ++n) {
      optimizer->zero_grad();
      loss_of(ours[i]).backward();
      step();
    }
  });
  for (size_t i = 0; i < ours.size(); ++i) {
    SCOPED_TRACE(i);
    const Tensors stock = parameters_of(i);
    const auto optimizer = makers()[i](stock);
    for (int n = 0; n < kSteps; ++n) {
      optimizer->zero_grad();
      loss_of(stock).backward();
      torch::nn::utils::clip_grad_norm_(stock, 1.0);
      optimizer->step();
    }
    expect_close(ours[i], stock);
  }
}

TEST(OptimThreads, BackwardsThatStep) {
  std::vector<Tensors> ours;
  for (uint64_t i = 0; i < 4; ++i) ours.push_back(parameters_of(i));
  in_threads(ours.size(), [&](size_t i) {
    torch::optim::SGD optimizer(ours[i], torch::optim::SGDOptions(0.1));
    const auto in_backward = step_in_backward(optimizer);
    const auto guard = enable();
    for (int n = 0; n < 10; ++n) loss_of(ours[i]).backward();
  });
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensors stock = parameters_of(i);
    torch::optim::SGD optimizer(stock, torch::optim::SGDOptions(0.1));
    for (int n = 0; n < 10; ++n) {
      optimizer.zero_grad();
      loss_of(stock).backward();
      optimizer.step();
    }
    expect_close(ours[i], stock);
  }
}

}  // namespace
}  // namespace hindcast::tests
