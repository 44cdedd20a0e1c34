// The forward and the backward each have their settings: the guard applies to the backwards in its scope, whoever built their graphs.
// Guards nest; the innermost one decides.

#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(8, 8), torch::nn::GELU(), torch::nn::Linear(8, 1));
  const auto loss_of = [&](int batch) { return model->forward(torch::randn({batch, 8})).square().mean(); };

  {
    const auto loss = loss_of(4);  // the forward of the first loss: without a guard
    hindcast::Options options;
    options.dynamic = hindcast::Dynamic::Never;  // one capture per size
    options.limit = 2;                           // and two at most: later sizes are not captured
    auto guard = hindcast::enable(options);
    loss.backward();
    for (const int batch : {4, 5, 6, 5}) loss_of(batch).backward();
    std::cout << "static:    " << hindcast::stats().unique_graphs << " graphs, " << hindcast::stats().hits << " hits\n";
  }

  hindcast::reset();
  auto guard = hindcast::enable();
  for (const int batch : {4, 5, 6, 5}) loss_of(batch).backward();
  std::cout << "automatic: " << hindcast::stats().unique_graphs << " graphs, " << hindcast::stats().hits << " hits\n";
  {
    hindcast::Options off;
    off.enabled = false;
    auto inner = hindcast::enable(off);
    loss_of(7).backward();  // the stock engine's
  }
  std::cout << hindcast::stats() << '\n';
}
