// A linear layer from 10 to 10, trained for three steps with an unchanged loss.backward(). On stderr: why the first backward was captured,
// and its graph. HINDCAST_LOGS selects the logs; "compiled_autograd" logs only the graph.

#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

int main() {
  setenv("HINDCAST_LOGS", "compiled_autograd_verbose", /*overwrite=*/0);
  torch::manual_seed(0);
  torch::nn::Linear model(10, 10);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  const auto x = torch::randn({10}), target = torch::randn({10});

  auto guard = hindcast::enable();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(model(x), target);
    loss.backward();
    optimizer.step();
    std::cout << "step " << step << ": loss " << loss.item<float>() << '\n';
  }
  std::cout << hindcast::report();
}
