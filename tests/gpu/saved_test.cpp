// Checkpoints and offloading on a card.

#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <vector>

#include "hindcast/checkpoint.h"
#include "hindcast/hindcast.h"
#include "tests/gpu/on_gpu.h"

namespace hindcast::tests {
namespace {

class GpuSavedTensors : public OnGpu {
 protected:
  using Call = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

  static at::Tensor layer(const at::Tensor& x, const at::Tensor& w) { return at::dropout(x.mm(w).tanh(), 0.5, true).exp(); }

  /// For one seed: the gradients, and the next random numbers.
  static std::vector<at::Tensor> run(const Call& call) {
    at::manual_seed(3);
    const auto options = torch::dtype(at::kFloat).device(at::kCUDA);
    const auto x = torch::randn({64, 64}, options).requires_grad_(), w = (torch::randn({64, 64}, options) / 8).requires_grad_();
    call(call(x, w), w).sum().backward();
    return {x.grad(), w.grad(), torch::rand({4}, options)};
  }

  static void expect_as_without(const Call& call) {
    at::globalContext().setAllowTF32CuBLAS(false);
    const auto expected = run(layer);
    for (const bool guarded : {false, true}) {
      std::optional<Guard> guard;
      if (guarded) guard.emplace(hindcast::enable(compilers::eager()));
      for (int step = 0; step < 3; ++step) {
        const auto given = run(call);
        for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(given[i].equal(expected[i])) << "tensor " << i << ", step " << step;
      }
    }
  }
};

TEST_F(GpuSavedTensors, ComputedAgainWithTheSameRandomNumbers) {
  expect_as_without([](const at::Tensor& x, const at::Tensor& w) { return checkpoint(layer, x, w); });
}

TEST_F(GpuSavedTensors, InPageLockedMemory) {
  OffloadOptions options;
  options.min_bytes = 0;
  for (const bool pinned : {true, false}) {
    options.pin_memory = pinned;
    expect_as_without([&](const at::Tensor& x, const at::Tensor& w) { return offload_to_host(options, layer, x, w); });
  }
}

TEST_F(GpuSavedTensors, OffloadedArgumentsOfACheckpoint) {
  OffloadOptions options;
  options.min_bytes = 0;
  expect_as_without(
      [&](const at::Tensor& x, const at::Tensor& w) { return offload_to_host(options, [&] { return checkpoint(layer, x, w); }); });
}

}  // namespace
}  // namespace hindcast::tests
