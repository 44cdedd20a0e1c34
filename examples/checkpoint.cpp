// checkpoint(): a block's intermediate tensors are not kept for the backward, which recomputes them.

#include <hindcast/checkpoint.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <iostream>
#include <vector>

namespace {

using torch::Tensor;

torch::nn::Sequential block() {
  return torch::nn::Sequential(torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})), torch::nn::Linear(32, 128), torch::nn::GELU(),
                               torch::nn::Dropout(0.1), torch::nn::Linear(128, 32));
}

}  // namespace

int main() {
  torch::manual_seed(0);
  std::vector<torch::nn::Sequential> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(block());
  const Tensor input = torch::randn({64, 32});

  int runs = 0;
  const auto gradient = [&](bool with_checkpoints) {
    torch::manual_seed(1);  // for the dropouts
    Tensor x = input;
    for (auto& one : blocks) {
      auto residual = [&runs, one](const Tensor& y) mutable { return ++runs, y + one->forward(y); };
      x = with_checkpoints ? hindcast::checkpoint(residual, x) : residual(x);
    }
    const Tensor weight = blocks.front()->parameters().front();
    weight.mutable_grad() = Tensor();
    x.square().mean().backward();
    return weight.grad();
  };

  const Tensor expected = gradient(false);
  std::cout << "without checkpoints the blocks ran " << runs << " times\n";
  {
    const auto guard = hindcast::enable();  // optional: checkpoints work with the stock engine too
    for (int step = 0; step < 3; ++step) {
      runs = 0;
      const bool is_equal = gradient(true).equal(expected);
      std::cout << "step " << step << ": the blocks ran " << runs << " times, the gradient is " << (is_equal ? "the same" : "WRONG")
                << '\n';
    }
  }
  std::cout << hindcast::stats() << '\n';
}
