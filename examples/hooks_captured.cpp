// Hooks on parameters are part of the graph. A hook appears in it as call_hook, at its place in the order, and is called on every backward.
// A traceable one is looked into once: its operators appear in the graph instead.

#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  auto guard = hindcast::enable(hindcast::compilers::print(std::cout));

  int calls = 0;
  auto x = torch::randn({10, 10}, torch::requires_grad());
  x.register_hook([&](const torch::Tensor& grad) {
    ++calls;
    return grad + 10;
  });
  for (int step = 0; step < 3; ++step) x.sum().backward();
  std::cout << "the hook was called " << calls << " times\n\n";

  auto y = torch::randn({10, 10}, torch::requires_grad());
  y.register_hook(hindcast::traceable([](const torch::Tensor& grad) { return grad.clamp(-0.5, 0.5); }));
  const auto handle =
      hindcast::on_grad_ready(y, [](const torch::Tensor& param) { std::cout << "ready: " << param.grad()[0][0].item<float>() << '\n'; });
  for (int step = 0; step < 3; ++step) {
    y.mutable_grad() = torch::Tensor();
    y.sum().backward();
  }
}
