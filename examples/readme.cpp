#include <hindcast/hindcast.h>
#include <torch/torch.h>
#include <iostream>

int main() {
  auto weight = torch::ones({3, 4}, torch::requires_grad());
  auto guard = hindcast::enable(hindcast::compilers::print(std::cout));
  for (int batch : {2, 2, 5, 7}) torch::ones({batch, 4}).mm(weight.t()).tanh().sum().backward();
  std::cout << hindcast::stats().unique_graphs << " graphs, " << hindcast::stats().hits << " hits\n";
  return 0;
}
