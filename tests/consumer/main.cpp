// A user's program in C++17: the loss of a linear model, its backward taken over by hindcast.

#include <hindcast/checkpoint.h>
#include <hindcast/hindcast_c.h>
#include <hindcast/hindcast.h>
#include <torch/types.h>

#include <iostream>

int main() {
  torch::manual_seed(0);
  const auto x = torch::randn({16, 4});
  auto weight = torch::randn({3, 4}, torch::requires_grad());

  const auto backward = [&] {
    weight.mutable_grad() = torch::Tensor();
    x.matmul(weight.t()).tanh().square().mean().backward();
    return weight.grad();
  };

  const auto stock = backward();
  {
    auto guard = hindcast::enable();
    for (int step = 0; step < 3; ++step) {
      if (!backward().equal(stock)) {
        std::cerr << "step " << step << ": the gradient differs from the stock engine's\n";
        return 1;
      }
    }
  }
  weight.mutable_grad() = torch::Tensor();
  const auto layer = [&weight](const torch::Tensor& input) { return input.matmul(weight.t()).tanh(); };
  hindcast::checkpoint(layer, x).square().mean().backward();
  if (!weight.grad().equal(stock)) {
    std::cerr << "with a checkpoint the gradient differs from the stock engine's\n";
    return 1;
  }
  const auto stats = hindcast::stats();
  std::cout << stats << '\n';
  return stats.backwards == 3 && !hindcast::active() && hindcast_abi_version() == 1 ? 0 : 1;
}
