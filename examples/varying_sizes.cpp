// Sizes that change. 10 is captured statically; at 100 the sizes that changed become dynamic, which is the second and last capture; the
// other sizes are hits. On stderr: "marking size idx ... as dynamic" for each of them.

#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

int main() {
  setenv("HINDCAST_LOGS", "recompiles", /*overwrite=*/0);
  auto guard = hindcast::enable();
  for (const int n : {10, 100, 10, 37, 500}) {
    const auto hits = hindcast::stats().hits;
    auto x = torch::randn({n, n}, torch::requires_grad());
    x.sum().backward();
    std::cout << n << " x " << n << ": " << (hindcast::stats().hits > hits ? "found" : "captured") << '\n';
  }
  std::cout << hindcast::stats().unique_graphs << " graphs\n";
}
