// The functions of two tutorials on a card. A floor counts what bench/seed_workloads.cpp counts, with masks of bytes, as on a card.
//
// Each exists twice: as a function of its leaves, and as a workload. `..._whole` counts the passes of its forward and backward, compiled as
// two programs.

#include "bench/gpu/inputs.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Activation = Tensor (*)(const Tensor&);

Tensor relu(const Tensor& y) { return at::relu(y); }
Tensor gelu(const Tensor& y) { return at::gelu(y); }
Tensor silu(const Tensor& y) { return at::silu(y); }

/// Passes of the two programs that a function is compiled to, together. The forward reads each leaf and writes the result. The backward
/// reads the incoming gradient and writes each leaf's gradient. `needed`: the cost of the backward's other inputs, in the cheaper of two
/// ways: the forward writes them and the backward reads them, or the backward reads leaves again. Nothing else passes between the two: the
/// backward recreates dropout's mask from a seed, and a row's mean and deviation from the norm's input, which it reads anyway.
double passes_of_two_programs(double leaves, double needed) { return 2 * leaves + /*result=*/1 + /*incoming=*/1 + needed; }

Tensor normalized(const Tensor& y, const Tensor& weight = {}, const Tensor& bias = {}) {
  return at::layer_norm(y, {y.size(-1)}, weight, bias);
}

template <Activation activation>
Tensor bias_activation_dropout(const Tensors& in) {
  return dropout(activation(in[0] + in[1]));
}

// Saved: the activation's input or result, the mask. Gradients: x, bias.
template <Activation activation>
Workload bias_activation_dropout(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const double passes = /*incoming=*/1 + /*saved=*/1 + in.mask() + /*gradients=*/1 + in.of_width();
  return of_leaves(in, {in.x, in.bias}, passes, bias_activation_dropout<activation>);
}

// Needed: x and bias.
double bias_activation_dropout_whole(const Proportions& of) {
  return passes_of_two_programs(1 + of.of_width(), /*needed=*/1 + of.of_width());
}

// Needed: where the result is zero; a byte for each element, written and read.
double bias_relu_dropout_whole(const Proportions& of) { return passes_of_two_programs(1 + of.of_width(), /*needed=*/2 * of.mask()); }

Tensor bias_dropout_residual(const Tensors& in) { return dropout(in[0] + in[1]) + in[2]; }

// Saved: the mask. Gradients: x, bias, and the residual's, which is the incoming one, copied.
Workload bias_dropout_residual(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const double passes = /*incoming=*/1 + /*saved=*/in.mask() + /*gradients=*/2 + in.of_width();
  return of_leaves(in, {in.x, in.bias, in.leaf()}, passes, bias_dropout_residual);
}

// Needed: nothing.
double bias_dropout_residual_whole(const Proportions& of) { return passes_of_two_programs(2 + of.of_width(), /*needed=*/0); }

Tensor bias_dropout_residual_norm(const Tensors& in) { return normalized(dropout(in[0] + in[1]) + in[2], in[3], in[4]); }

// Saved: the mask; the norm's input, mean, deviation and weight. Gradients: x, bias, residual, the norm's weight and bias.
Workload bias_dropout_residual_norm(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const double passes = /*incoming=*/1 + /*saved=*/in.mask() + 1 + 2 * in.of_rows() + in.of_width() + /*gradients=*/2 + 3 * in.of_width();
  return of_leaves(in, {in.x, in.bias, in.leaf(), in.weight, from.leaf({sizes.back()})}, passes, bias_dropout_residual_norm);
}

// Needed: the norm's input, written and read, and its weight.
double bias_dropout_residual_norm_whole(const Proportions& of) {
  return passes_of_two_programs(2 + 3 * of.of_width(), /*needed=*/2 + of.of_width());
}

Tensor add_norm_add(const Tensors& in) { return normalized(in[0] + in[1]) + in[2]; }

// The tutorial's fn(a, b, c): a norm without weights. Saved: its input, mean, deviation. Gradients: a, b, c; that of c is the incoming one,
// copied.
Workload add_norm_add(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const double passes = /*incoming=*/1 + /*saved=*/1 + 2 * in.of_rows() + /*gradients=*/3;
  return of_leaves(in, {in.x, in.leaf(), in.leaf()}, passes, add_norm_add);
}

// Needed: the norm's input: a and b, or their sum, written and read.
double add_norm_add_whole(const Proportions&) { return passes_of_two_programs(3, /*needed=*/2); }

Tensor layer_norm(const Tensors& in) { return normalized(in[0], in[1], in[2]); }

// Saved: its input, mean, deviation and weight. Gradients: x, weight, bias.
Workload layer_norm(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const double passes = /*incoming=*/1 + /*saved=*/1 + 2 * in.of_rows() + in.of_width() + /*gradients=*/1 + 2 * in.of_width();
  return of_leaves(in, {in.x, in.weight, in.bias}, passes, layer_norm);
}

// Needed: x and the norm's weight.
double layer_norm_whole(const Proportions& of) { return passes_of_two_programs(1 + 2 * of.of_width(), /*needed=*/1 + of.of_width()); }

}  // namespace

std::vector<Row> seed_rows() {
  const std::vector<std::vector<int64_t>> shapes = {{8, 256, 512},   {8, 512, 1024},   {4, 1024, 1024},
                                                    {2, 2048, 2048}, {1, 2048, 12288}, {2, 4096, 4096}};
  std::vector<Row> all;
  const Named patterns[] = {
      {"seed/bias_relu_dropout", bias_activation_dropout<relu>, bias_activation_dropout<relu>, bias_relu_dropout_whole},
      {"seed/bias_gelu_dropout", bias_activation_dropout<gelu>, bias_activation_dropout<gelu>, bias_activation_dropout_whole},
      {"seed/bias_silu_dropout", bias_activation_dropout<silu>, bias_activation_dropout<silu>, bias_activation_dropout_whole},
      {"seed/bias_dropout_residual", bias_dropout_residual, bias_dropout_residual, bias_dropout_residual_whole},
      {"seed/bias_dropout_residual_norm", bias_dropout_residual_norm, bias_dropout_residual_norm, bias_dropout_residual_norm_whole},
      {"seed/add_norm_add", add_norm_add, add_norm_add, add_norm_add_whole},
      {"seed/layer_norm", layer_norm, layer_norm, layer_norm_whole},
  };
  for (const Named& one : patterns) {
    for (const at::ScalarType type : {at::kHalf, at::kFloat}) {
      for (const std::vector<int64_t>& sizes : shapes) all.push_back(row_of(one, sizes, type));
    }
  }
  return all;
}

}  // namespace hindcast::bench::gpu
