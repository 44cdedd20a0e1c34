// Residual blocks with dropout, each of them a checkpoint: the same gradients, and each block runs once more in the backward.

#include <hindcast/checkpoint.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

namespace hindcast::tests {
namespace {

constexpr int kBlocks = 4;

class Checkpoints : public testing::TestWithParam<bool> {
 protected:
  Checkpoints() {
    torch::manual_seed(0);
    for (int i = 0; i < kBlocks; ++i) {
      blocks_.emplace_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})), torch::nn::Linear(8, 16), torch::nn::GELU(),
                           torch::nn::Dropout(0.1), torch::nn::Linear(16, 8));
    }
    input_ = torch::randn({4, 8});
  }

  std::vector<at::Tensor> gradients(bool with_checkpoints) {
    torch::manual_seed(1);  // for the dropouts
    at::Tensor x = input_;
    std::vector<at::Tensor> parameters;
    for (auto& block : blocks_) {
      auto residual = [this, block](const at::Tensor& y) mutable { return ++runs_, y + block->forward(y); };
      x = with_checkpoints ? checkpoint(residual, x) : residual(x);
      for (const at::Tensor& parameter : block->parameters()) parameters.push_back(parameter);
    }
    return torch::autograd::grad({x.square().mean()}, parameters);
  }

  std::vector<torch::nn::Sequential> blocks_;
  at::Tensor input_;
  int runs_ = 0;
};

TEST_P(Checkpoints, GiveTheSameGradients) {
  const auto expected = gradients(false);
  EXPECT_EQ(runs_, kBlocks);
  std::optional<Guard> guard;
  if (GetParam()) guard.emplace(hindcast::enable(compilers::eager()));
  for (int step = 0; step < 3; ++step) {
    runs_ = 0;
    const auto given = gradients(true);
    EXPECT_EQ(runs_, 2 * kBlocks);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(given[i].equal(expected[i])) << "parameter " << i << ", step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutAGuard, Checkpoints, testing::Bool());

}  // namespace
}  // namespace hindcast::tests
