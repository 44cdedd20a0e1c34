// Another operator is another graph. On stderr, for each: the first node that no earlier graph has at that place, "Cache miss due to new
// autograd node: ...". The second round hits all four.

#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <utility>
#include <vector>

int main() {
  setenv("HINDCAST_LOGS", "recompiles", /*overwrite=*/0);
  using Operator = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&);
  const std::vector<std::pair<const char*, Operator>> operators = {
      {"add", [](const torch::Tensor& a, const torch::Tensor& b) { return a + b; }},
      {"sub", [](const torch::Tensor& a, const torch::Tensor& b) { return a - b; }},
      {"mul", [](const torch::Tensor& a, const torch::Tensor& b) { return a * b; }},
      {"div", [](const torch::Tensor& a, const torch::Tensor& b) { return a / b; }},
  };
  auto x = torch::randn({10}, torch::requires_grad());

  auto guard = hindcast::enable();
  for (int round = 0; round < 2; ++round) {
    for (const auto& [name, apply] : operators) {
      const auto hits = hindcast::stats().hits;
      apply(x, x).sum().backward();
      std::cout << name << ": " << (hindcast::stats().hits > hits ? "found" : "captured") << '\n';
    }
  }
}
