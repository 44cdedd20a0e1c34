// Parts of networks that have a dedicated kernel or pass. Each was slower than stock, or no faster, without it.

#include "bench/harness.h"
#include "bench/suites.h"

#include <ATen/ATen.h>

#include <functional>
#include <utility>
#include <vector>

namespace hindcast::bench {
namespace {

using at::Tensor;

Tensor leaf(Tensor values) { return values.set_requires_grad(true); }

Workload with_incoming(Tensor incoming, std::vector<Tensor> leaves, std::function<Tensor()> forward) {
  Workload work{std::move(leaves), std::move(forward)};
  work.incoming = std::move(incoming);
  return work;
}

// One kernel computes and stores two halves side by side.
Workload swiglu(int64_t rows, int64_t width) {
  const Tensor x = leaf(at::randn({rows, width}));
  return with_incoming(at::randn({rows, width / 2}), {x}, [x] {
    const std::vector<Tensor> halves = x.chunk(2, -1);
    return at::silu(halves[0]) * halves[1];
  });
}

// A policy's head: half of a linear layer's outputs are means, half logs of deviations.
Workload gaussian_policy(int64_t batch, int64_t actions) {
  const Tensor x = leaf(at::randn({batch, 2 * actions})), taken = at::randn({batch, actions});
  return {{x}, [=] {
            const Tensor y = at::tanh(x), mean = y.slice(1, 0, actions), log_deviation = y.slice(1, actions);
            return (log_deviation + at::square((taken - mean) * at::exp(-log_deviation)) * 0.5).mean();
          }};
}

Workload complex_chain(int64_t numbers) {
  const auto options = at::TensorOptions(at::kComplexFloat);
  const Tensor x = leaf(at::randn({numbers}, options)), w = leaf(at::randn({numbers}, options));
  return with_incoming(at::randn({numbers}, options), {x, w}, [x, w] {
    Tensor y = x;
    for (int i = 0; i < 4; ++i) y = at::tanh(y * w + x);
    return y;
  });
}

// Small images: a channel consists of many short runs.
Workload batch_norm_silu(at::IntArrayRef sizes) {
  const Tensor x = leaf(at::randn(sizes)), weight = leaf(at::rand({sizes[1]}) + 0.5), bias = leaf(at::randn({sizes[1]}));
  return with_incoming(at::randn(sizes), {x, weight, bias}, [x, weight, bias] {
    return at::silu(at::batch_norm(x, weight, bias, {}, {}, /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false));
  });
}

// For each write autograd keeps a gradient of the whole tensor.
Workload written_steps(int64_t steps) {
  constexpr int64_t kBatch = 32, kWidth = 64;
  const Tensor x = leaf(at::randn({kBatch, steps, kWidth}));
  return with_incoming(at::randn({kBatch, steps, kWidth}), {x}, [=] {
    Tensor out = at::zeros_like(x);
    for (int64_t step = 0; step < steps; ++step) out.select(1, step).copy_(at::tanh(x.select(1, step)));
    return out;
  });
}

// Differences between neighbours: the gradient is the sum of four gradients of slices.
Workload total_variation(at::IntArrayRef sizes) {
  const Tensor x = leaf(at::randn(sizes));
  return {{x}, [x] {
            const Tensor y = x * 0.5;
            return (y.slice(3, 1) - y.slice(3, 0, -1)).abs().sum() + (y.slice(2, 1) - y.slice(2, 0, -1)).abs().sum();
          }};
}

// The gradient is cut off at the edges of each image.
Workload padded(at::IntArrayRef sizes) {
  const Tensor x = leaf(at::randn(sizes));
  return {{x}, [x] { return (at::tanh(at::constant_pad_nd(at::sigmoid(x), {1, 1, 1, 1})) * 3).square().sum(); }};
}

// 72 MiB: results leave every cache before they are read.
Workload large_bias_relu(int64_t width) {
  const Tensor x = leaf(at::randn({8, width, width})), bias = leaf(at::randn({width}));
  return with_incoming(at::randn({8, width, width}), {x, bias}, [x, bias] { return at::relu(x + bias); });
}

}  // namespace

void register_patterns(const Settings& settings) {
  const auto row = [&](const std::string& name, int pairs, const Build& build) {
    register_pair(settings, "pattern/" + name, pairs, build);
  };
  row("swiglu/2048x2048", kSlowPairs, [] { return swiglu(2048, 2048); });
  row("policy/256x8", kPairs, [] { return gaussian_policy(256, 8); });
  row("complex/1m", kSlowPairs, [] { return complex_chain(1 << 20); });
  row("batch_norm_silu/32x256x4x4", kPairs, [] { return batch_norm_silu({32, 256, 4, 4}); });
  row("total_variation/8x3x128x128", kPairs, [] { return total_variation({8, 3, 128, 128}); });
  row("padded/8x64x32x32", kPairs, [] { return padded({8, 64, 32, 32}); });
  row("bias_relu/8x1536x1536", kSlowPairs, [] { return large_bias_relu(1536); });
  row("written_steps/100", kSlowPairs, [] { return written_steps(100); });
}

}  // namespace hindcast::bench
