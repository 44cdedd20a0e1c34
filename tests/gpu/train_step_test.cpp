// Whole training steps on a card: in parts and as one CUDA graph, compared with LibTorch's.

#include <gtest/gtest.h>
#include <hindcast/train_step.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/deterministic.h"
#include "tests/gpu/on_gpu.h"

namespace hindcast::tests {
namespace {

using at::Tensor;

class GpuTrainStep : public OnTestedDevice {
 protected:
  struct Net {
    explicit Net(bool has_dropout)
        : drops(has_dropout),
          layers(torch::nn::Linear(24, 64), torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})), torch::nn::GELU(),
                 torch::nn::Linear(64, 5)) {
      layers->to(device_of_tests(), at::kDouble);
    }
    Tensor loss(const Tensor& x, const Tensor& y) {
      return torch::cross_entropy_loss(layers->forward(drops ? at::dropout(x, 0.5, true) : x), y);
    }
    bool drops;
    torch::nn::Sequential layers;
  };

  static TrainStepOptions options(bool cuda_graphs) {
    TrainStepOptions options;
    options.clip = ClipGradNorm{0.5};
    options.cuda_graphs = cuda_graphs;
    options.aot.async = false;
    return options;
  }

 private:
  const SteadyLibraries steady_;
};

TEST_F(GpuTrainStep, IsLibTorchsStep) {
  for (const bool cuda_graphs : {false, true}) {
    SCOPED_TRACE(cuda_graphs);
    torch::manual_seed(3);
    Net ours(false), stock(false);
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < stock.layers->parameters().size(); ++i) stock.layers->parameters()[i].copy_(ours.layers->parameters()[i]);
    }
    torch::optim::AdamW of_ours(ours.layers->parameters(), 0.01), of_stock(stock.layers->parameters(), 0.01);
    auto step = train_step(
        of_ours, [&](const Tensor& x, const Tensor& y) { return ours.loss(x, y); }, options(cuda_graphs));
    std::vector<std::pair<Tensor, Tensor>> losses;
    for (int i = 0; i < 30; ++i) {
      const int64_t rows = i % 7 == 5 ? 19 : 32;
      const Tensor x = at::randn({rows, 24}, at::kDouble).to(device_of_tests());
      const Tensor y = at::randint(5, {rows}, at::kLong).to(device_of_tests());
      for (auto* const optimizer : {&of_ours, &of_stock}) {
        for (auto& group : optimizer->param_groups()) group.options().set_lr(0.01 / (1 + i));
      }
      of_stock.zero_grad();
      const Tensor expected = stock.loss(x, y);
      expected.backward();
      torch::nn::utils::clip_grad_norm_(stock.layers->parameters(), 0.5);
      of_stock.step();
      losses.emplace_back(step(x, y), expected.detach());
    }
    for (const auto& [loss, expected] : losses) EXPECT_TRUE(at::allclose(loss, expected, 1e-8, 1e-10));
    for (size_t i = 0; i < stock.layers->parameters().size(); ++i) {
      EXPECT_TRUE(at::allclose(ours.layers->parameters()[i], stock.layers->parameters()[i], 1e-8, 1e-10)) << i;
    }
    EXPECT_EQ(step.stats().updates.original, 0U) << step.stats().updates.why_original;
    if (cuda_graphs && device_of_tests().is_cuda()) {
      EXPECT_GE(step.stats().cuda_graph_launches, 15U) << step.stats().why_no_cuda_graph;
    }
  }
}

TEST_F(GpuTrainStep, ALossFallsWithDropoutToo) {
  torch::manual_seed(4);
  Net net(true);
  torch::optim::Adam optimizer(net.layers->parameters(), 0.01);
  auto step = train_step(
      optimizer, [&](const Tensor& x, const Tensor& y) { return net.loss(x, y); }, options(true));
  const Tensor x = at::randn({64, 24}, at::kDouble).to(device_of_tests()), y = at::randint(5, {64}, at::kLong).to(device_of_tests());
  const double first = step(x, y).item<double>();
  double last = first;
  for (int i = 0; i < 60; ++i) last = step(x, y).item<double>();
  EXPECT_LT(last, 0.7 * first);
  EXPECT_EQ(step.stats().cuda_graph_launches, 0U);
}

}  // namespace
}  // namespace hindcast::tests
