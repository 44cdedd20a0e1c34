// A forward in three pieces that know nothing of each other. Its backward is still one graph: it is captured when it runs, from all nodes
// that lead to the loss.

#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <iostream>

namespace {

torch::Tensor first_piece(const torch::Tensor& x) { return x + 10; }

torch::Tensor second_piece(const torch::Tensor& x) {
  std::cout << "between the pieces the program looks at a value: " << x.mean().item<float>() << '\n';
  return x + 10;
}

torch::Tensor third_piece(const torch::Tensor& x) { return x.sum(); }

}  // namespace

int main() {
  auto x = torch::zeros({10, 10}, torch::requires_grad());
  const auto loss = third_piece(second_piece(first_piece(x)));

  auto guard = hindcast::enable(hindcast::compilers::print(std::cout));
  loss.backward();
  std::cout << "graphs captured: " << hindcast::stats().unique_graphs << '\n';
}
