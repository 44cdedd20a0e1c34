// Each workload counts the bytes of its floor next to its formula: what a perfect backward of this eager forward moves, every saved tensor
// read once (dropout's mask is one of floats on a CPU), the incoming gradient read once, every leaf's gradient written once. Nothing in
// between is counted: a perfect backward keeps it in registers.

#include "bench/seed_workloads.h"

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <utility>

namespace hindcast::bench {
namespace {

using at::Tensor;

constexpr double kFloat = sizeof(float);
constexpr double kDropout = 0.1;

Tensor leaf(Tensor values) { return values.set_requires_grad(true); }

Workload four_leaves() {
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) leaves.push_back(leaf(at::randn({1024, 2048})));
  return {leaves, [leaves] { return (leaves[0] + leaves[1] + leaves[2] + leaves[3]).cos().cos().sum(); }};
}

double four_leaves_bytes(double tensors) { return tensors * 1024 * 2048 * kFloat; }

/// The tensors of a pattern; `elements`, `rows` and `width` are the terms of the formulas of bytes.
struct Inputs {
  Tensor x, bias, residual, weight, norm_bias;
  Tensor incoming;
  double elements, rows, width;

  explicit Inputs(at::IntArrayRef sizes)
      : x(leaf(at::randn(sizes))),
        bias(leaf(at::randn({sizes.back()}))),
        residual(leaf(at::randn(sizes))),
        weight(leaf(at::rand({sizes.back()}) + 0.5)),
        norm_bias(leaf(at::randn({sizes.back()}))),
        incoming(at::randn(sizes)),
        elements(static_cast<double>(x.numel())),
        rows(elements / static_cast<double>(sizes.back())),
        width(static_cast<double>(sizes.back())) {}

  Tensor norm(const Tensor& y) const { return at::layer_norm(y, weight.sizes(), weight, norm_bias); }
};

Tensor dropout(const Tensor& y) { return at::dropout(y, kDropout, /*train=*/true); }

// The patterns end in a tensor, whose gradient the layer above would provide. The tutorial's sum would provide ones, and after a layer norm
// or a softmax ones become zeros: a comparison of gradients would then compare nothing.
Workload pattern(const Inputs& in, std::vector<Tensor> leaves, std::function<Tensor()> forward, double floats) {
  Workload work{std::move(leaves), std::move(forward)};
  work.incoming = in.incoming;
  work.floor_bytes = kFloat * floats;
  return work;
}

using Activation = Tensor (*)(const Tensor&);
Tensor relu(const Tensor& y) { return at::relu(y); }
Tensor gelu(const Tensor& y) { return at::gelu(y); }
Tensor silu(const Tensor& y) { return at::silu(y); }

// Saved: the activation's input or result. Gradients: x, bias.
template <Activation activation>
Workload bias_activation(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats = /*incoming=*/in.elements + /*saved=*/in.elements + /*gradients=*/in.elements + in.width;
  return pattern(
      in, {in.x, in.bias}, [in] { return activation(in.x + in.bias); }, floats);
}

// Saved: the activation's input or result, the mask. Gradients: x, bias.
template <Activation activation>
Workload bias_activation_dropout(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats = /*incoming=*/in.elements + /*saved=*/2 * in.elements + /*gradients=*/in.elements + in.width;
  return pattern(
      in, {in.x, in.bias}, [in] { return dropout(activation(in.x + in.bias)); }, floats);
}

// Saved: the mask; the norm's input, mean, deviation and weight. Gradients: x, bias, residual, weight, norm_bias.
Workload bias_dropout_residual_norm(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats =
      /*incoming=*/in.elements + /*saved=*/2 * in.elements + 2 * in.rows + in.width + /*gradients=*/2 * in.elements + 3 * in.width;
  return pattern(
      in, {in.x, in.bias, in.residual, in.weight, in.norm_bias}, [in] { return in.norm(dropout(in.x + in.bias) + in.residual); }, floats);
}

// Saved: as above and gelu's input.
Workload bias_gelu_dropout_residual_norm(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats =
      /*incoming=*/in.elements + /*saved=*/3 * in.elements + 2 * in.rows + in.width + /*gradients=*/2 * in.elements + 3 * in.width;
  return pattern(
      in, {in.x, in.bias, in.residual, in.weight, in.norm_bias}, [in] { return in.norm(dropout(at::gelu(in.x + in.bias)) + in.residual); },
      floats);
}

// Saved: the norm's input, mean, deviation and weight. Gradients: x, weight, norm_bias.
Workload layer_norm(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats =
      /*incoming=*/in.elements + /*saved=*/in.elements + 2 * in.rows + in.width + /*gradients=*/in.elements + 2 * in.width;
  return pattern(
      in, {in.x, in.weight, in.norm_bias}, [in] { return in.norm(in.x); }, floats);
}

// Saved: as above. Gradients: x, residual, weight, norm_bias.
Workload residual_norm(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats =
      /*incoming=*/in.elements + /*saved=*/in.elements + 2 * in.rows + in.width + /*gradients=*/2 * in.elements + 2 * in.width;
  return pattern(
      in, {in.x, in.residual, in.weight, in.norm_bias}, [in] { return in.norm(in.x + in.residual); }, floats);
}

// The tutorial's fn(a, b, c): a norm without weights. Saved: its input, mean, deviation. Gradients: a, b, c; that of c is
// the incoming one, which its owner keeps, so it is written too.
Workload tutorial_fn(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const Tensor c = leaf(at::randn(sizes));
  const double floats = /*incoming=*/in.elements + /*saved=*/in.elements + 2 * in.rows + /*gradients=*/3 * in.elements;
  return pattern(
      in, {in.x, in.residual, c}, [in, c] { return at::layer_norm(in.x + in.residual, {in.x.size(-1)}) + c; }, floats);
}

// Saved: the result. Gradient: x.
Workload softmax(at::IntArrayRef sizes) {
  const Inputs in(sizes);
  const double floats = /*incoming=*/in.elements + /*saved=*/in.elements + /*gradients=*/in.elements;
  return pattern(
      in, {in.x}, [in] { return at::softmax(in.x, -1); }, floats);
}

}  // namespace

// Saved: the inputs of both cos. Each gradient is written once; the incoming one is a single number.
Workload aot_tutorial(AfterBackward after) {
  Workload work = four_leaves();
  double tensors = /*saved=*/2 + /*gradients=*/4;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  switch (after) {
    case AfterBackward::Nothing:
      break;
    case AfterBackward::ClipAndSgd:
      optimizer = std::make_shared<torch::optim::SGD>(work.leaves, torch::optim::SGDOptions(/*lr=*/1e-3));
      tensors += /*clipped=*/4 + 4 + /*parameters=*/4 + 4;  // the norm of all gradients must be known before the first is clipped
      break;
    case AfterBackward::ClipAndAdam:
      optimizer = std::make_shared<torch::optim::Adam>(work.leaves, torch::optim::AdamOptions(/*lr=*/1e-3));
      tensors += /*clipped=*/4 + 4 + /*parameters=*/4 + 4 + /*both moments=*/8 + 8;
      break;
  }
  if (optimizer) {
    work.after_backward = [leaves = work.leaves, optimizer] {
      torch::nn::utils::clip_grad_norm_(leaves, /*max_norm=*/1.0);
      optimizer->step();
    };
  }
  work.floor_bytes = four_leaves_bytes(tensors);
  return work;
}

// The old gradients are read too.
Workload aot_tutorial_accumulating() {
  Workload work = zeroed_in_place(four_leaves());
  work.floor_bytes = four_leaves_bytes(/*saved=*/2 + /*gradients=*/4 + 4);
  return work;
}

const std::vector<Pattern>& xformers_patterns() {
  static const std::vector<Pattern> patterns = {
      {"bias_relu", bias_activation<relu>},
      {"bias_gelu", bias_activation<gelu>},
      {"bias_silu", bias_activation<silu>},
      {"bias_relu_dropout", bias_activation_dropout<relu>},
      {"bias_gelu_dropout", bias_activation_dropout<gelu>},
      {"bias_silu_dropout", bias_activation_dropout<silu>},
      {"bias_dropout_residual_norm", bias_dropout_residual_norm},
      {"bias_gelu_dropout_residual_norm", bias_gelu_dropout_residual_norm},
      {"layer_norm", layer_norm},
      {"residual_norm", residual_norm},
      {"add_norm_add", tutorial_fn},
      {"softmax", softmax},
  };
  return patterns;
}

}  // namespace hindcast::bench
