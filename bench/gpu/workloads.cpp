#include "bench/gpu/workloads.h"

#include "bench/gpu/inputs.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;

Workload cosines(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const std::vector<Tensor> leaves = {in.x, in.leaf(), in.leaf(), in.leaf()};
  // Read: two saved ones and the incoming one; written: four.
  return pattern(in, leaves, 7, [leaves] { return (leaves[0] + leaves[1] + leaves[2] + leaves[3]).cos().cos(); });
}

Workload bias_gelu(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  return pattern(in, {in.x, in.bias}, 3, [in] { return at::gelu(in.x + in.bias); });
}

Workload swiglu(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  // silu(a), a and b, which are saved, and the incoming gradient are halves. The leaf's gradient is a whole.
  return pattern(in, {in.x}, 3, [in] {
    const std::vector<Tensor> halves = in.x.chunk(2, -1);
    return at::silu(halves[0]) * halves[1];
  });
}

Workload dropout_residual(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const Tensor residual = in.leaf();
  // The residual's gradient is the incoming one, copied.
  return pattern(in, {in.x, in.bias, residual}, 4 + in.mask(), [in, residual] { return dropout(at::relu(in.x + in.bias)) + residual; });
}

Workload softmax(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  return pattern(in, {in.x}, 3, [in] { return at::softmax(in.x * 0.125, -1); });
}

Workload norm_of_layer(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  return pattern(in, {in.x, in.weight, in.bias}, 3, [in] { return at::layer_norm(in.x, {in.x.size(-1)}, in.weight, in.bias); });
}

Workload rms_norm(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  return pattern(in, {in.x, in.weight}, 3, [in] { return in.x * at::rsqrt(in.x.square().mean(-1, /*keepdim=*/true) + 1e-5) * in.weight; });
}

// A sum over rows only: reads `x` and the incoming gradient.
Workload column_sums(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  return pattern(in, {in.weight}, 2, [in] { return in.x.detach() * in.weight; });
}

Workload row_sums(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const Tensor scale = from.leaf({sizes[0], 1});
  return pattern(in, {scale}, 2, [in, scale] { return in.x.detach() * scale; });
}

/// Ops whose kernels take less time than their launches.
Workload chain(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  return pattern(in, {in.x}, 22, [in] {
    Tensor y = in.x;
    for (int i = 0; i < 10; ++i) y = at::tanh(at::sin(y * 1.5));
    return y;
  });
}

/// Layers of 64, with a product each.
Workload mlp(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  constexpr int kLayers = 6;
  std::vector<Tensor> leaves;
  for (int i = 0; i < kLayers; ++i) {
    leaves.push_back((from.numbers({sizes.back(), sizes.back()}) / 8).set_requires_grad(true));
    leaves.push_back(from.leaf({sizes.back()}));
  }
  // `x` is as large as a weight. Saved: what each layer and each activation reads, and the weights but the first.
  const double passes = /*incoming=*/1 + /*saved=*/2 * kLayers + kLayers - 1 + /*gradients=*/kLayers * (1 + in.of_width());
  return pattern(in, leaves, passes, [in, leaves] {
    Tensor y = in.x.detach();
    for (size_t i = 0; i < leaves.size(); i += 2) y = at::gelu(at::addmm(leaves[i + 1], y, leaves[i]));
    return y;
  });
}

/// A layer of a transformer, without attention's own kernels.
Workload block(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  const int64_t width = sizes.back();
  std::vector<Tensor> leaves = {in.weight, in.bias};
  for (const int64_t columns : {width, width, width, width, 4 * width})
    leaves.push_back((from.numbers({width, columns}) / 16).set_requires_grad(true));
  leaves.push_back((from.numbers({4 * width, width}) / 32).set_requires_grad(true));
  // `x` is as large as a small weight and as the scores. Saved: x, y, queries, keys, values, scores, what the products with the last three
  // weights read, gelu's input, all weights; the norm's mean, deviation and weight.
  const double saved = 1 + 1 + 3 + 1 + 1 + 1 + 4 + 4 + /*weights=*/12 + 2 * in.of_rows() + in.of_width();
  const double passes = /*incoming=*/1 + saved + /*gradients=*/12 + 2 * in.of_width();
  return pattern(in, leaves, passes, [in, leaves] {
    const Tensor x = in.x.detach(), y = at::layer_norm(x, {x.size(-1)}, leaves[0], leaves[1]);
    const Tensor scores = at::softmax(at::mm(at::mm(y, leaves[2]), at::mm(y, leaves[3]).t()) * 0.125, -1);
    const Tensor mixed = x + at::mm(at::mm(scores, at::mm(y, leaves[4])), leaves[5]);
    return mixed + at::mm(at::gelu(at::mm(mixed, leaves[6])), leaves[7]);
  });
}

/// Ops on few numbers, with products that keep kernels apart.
Workload tiny(at::IntArrayRef sizes, const Source& from) {
  const Inputs in(sizes, from);
  constexpr int kSteps = 200;  // of five ops
  const Tensor square = from.numbers({sizes.back(), sizes.back()}) / 4;
  // Saved: what sin and tanh need, and the square, which is as large as `x`.
  return pattern(in, {in.x}, 2 * kSteps + 3, [in, square] {
    Tensor y = in.x;
    for (int i = 0; i < kSteps; ++i) y = at::tanh(at::sin(at::mm(y, square)) * 1.5) + y;
    return y;
  });
}

}  // namespace

std::vector<Row> launch_bound_rows() {
  std::vector<Row> all;
  for (const Named& one : {Named{"steps/chain", chain}, Named{"steps/mlp", mlp}, Named{"steps/block", block}}) {
    all.push_back(row_of(one, {64, 64}, at::kFloat));
  }
  all.push_back(row_of({"steps/tiny", tiny}, {8, 8}, at::kFloat));
  return all;
}

std::vector<Row> rows() {
  std::vector<Row> all;
  const auto add = [&](const Named& one, const std::vector<int64_t>& sizes, at::ScalarType type) {
    all.push_back(row_of(one, sizes, type));
  };
  for (const Named& one :
       {Named{"cosines", cosines}, Named{"bias_gelu", bias_gelu}, Named{"swiglu", swiglu}, Named{"dropout_residual", dropout_residual},
        Named{"softmax", softmax}, Named{"layer_norm", norm_of_layer}, Named{"rms_norm", rms_norm}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) add(one, {8192, 4096}, type);
    add(one, {64, 256}, at::kFloat);
  }
  for (const Named& one : {Named{"column_sums", column_sums}, Named{"row_sums", row_sums}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) add(one, {8192, 4096}, type);
  }
  add({"cosines", cosines}, {8192, 8192}, at::kFloat);
  add({"cosines", cosines}, {1024, 2048}, at::kFloat);
  add({"softmax", softmax}, {4096, 50304}, at::kBFloat16);
  add({"chain", chain}, {64, 256}, at::kFloat);
  return all;
}

}  // namespace hindcast::bench::gpu
