#include "bench/gpu/workloads.h"

#include <ATen/ATen.h>

#include <utility>

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;

/// The tensors of a pattern: `x` of the sizes, the others of the last one.
struct Inputs {
  at::TensorOptions options;
  Tensor x, weight, bias;

  Inputs(at::IntArrayRef sizes, at::TensorOptions of)
      : options(of),
        x(leaf(at::randn(sizes, of))),
        weight(leaf(at::rand({sizes.back()}, of) + 0.5)),
        bias(leaf(at::randn({sizes.back()}, of))) {}
  static Tensor leaf(const Tensor& values) { return values.detach().set_requires_grad(true); }
  double bytes() const { return static_cast<double>(x.numel()) * static_cast<double>(x.element_size()); }
};

/// `passes`: tensors as large as `x` that a perfect backward reads or writes.
Workload pattern(const Inputs& in, std::vector<Tensor> leaves, double passes, std::function<Tensor()> forward) {
  Workload work{std::move(leaves), std::move(forward)};
  work.incoming = at::randn_like(work.forward().detach());
  work.floor_bytes = passes * in.bytes();
  return work;
}

Workload cosines(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  std::vector<Tensor> leaves;
  for (int i = 0; i < 4; ++i) leaves.push_back(Inputs::leaf(at::randn(sizes, of)));
  // Read: two saved ones and the incoming one; written: four.
  return pattern(in, leaves, 7, [leaves] { return (leaves[0] + leaves[1] + leaves[2] + leaves[3]).cos().cos(); });
}

Workload bias_gelu(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  return pattern(in, {in.x, in.bias}, 3, [in] { return at::gelu(in.x + in.bias); });
}

Workload swiglu(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  // silu(a), a and b saved, and the incoming one: halves. The gradient is a whole.
  return pattern(in, {in.x}, 3, [in] {
    const std::vector<Tensor> halves = in.x.chunk(2, -1);
    return at::silu(halves[0]) * halves[1];
  });
}

Workload dropout_residual(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  const Tensor residual = Inputs::leaf(at::randn(sizes, of));
  // The mask is one of bytes. The residual's gradient is the incoming one, copied.
  return pattern(in, {in.x, in.bias, residual}, 4 + 1.0 / static_cast<double>(in.x.element_size()),
                 [in, residual] { return at::dropout(at::relu(in.x + in.bias), 0.1, /*train=*/true) + residual; });
}

Workload softmax(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  return pattern(in, {in.x}, 3, [in] { return at::softmax(in.x * 0.125, -1); });
}

Workload layer_norm(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  return pattern(in, {in.x, in.weight, in.bias}, 3, [in] { return at::layer_norm(in.x, {in.x.size(-1)}, in.weight, in.bias); });
}

Workload rms_norm(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  return pattern(in, {in.x, in.weight}, 3, [in] { return in.x * at::rsqrt(in.x.square().mean(-1, /*keepdim=*/true) + 1e-5) * in.weight; });
}

/// Ops whose kernels take less time than their launches.
Workload chain(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  return pattern(in, {in.x}, 22, [in] {
    Tensor y = in.x;
    for (int i = 0; i < 10; ++i) y = at::tanh(at::sin(y * 1.5));
    return y;
  });
}

/// Layers of 64, with a product each.
Workload mlp(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  std::vector<Tensor> leaves;
  for (int i = 0; i < 6; ++i) {
    leaves.push_back(Inputs::leaf(at::randn({sizes.back(), sizes.back()}, of) / 8));
    leaves.push_back(Inputs::leaf(at::randn({sizes.back()}, of)));
  }
  return pattern(in, leaves, 3 * 6, [in, leaves] {
    Tensor y = in.x.detach();
    for (size_t i = 0; i < leaves.size(); i += 2) y = at::gelu(at::addmm(leaves[i + 1], y, leaves[i]));
    return y;
  });
}

/// A layer of a transformer, without attention's own kernels.
Workload block(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  const int64_t width = sizes.back();
  std::vector<Tensor> leaves = {in.weight, in.bias};
  for (const int64_t columns : {width, width, width, width, 4 * width})
    leaves.push_back(Inputs::leaf(at::randn({width, columns}, of) / 16));
  leaves.push_back(Inputs::leaf(at::randn({4 * width, width}, of) / 32));
  return pattern(in, leaves, 30, [in, leaves] {
    const Tensor x = in.x.detach(), y = at::layer_norm(x, {x.size(-1)}, leaves[0], leaves[1]);
    const Tensor scores = at::softmax(at::mm(at::mm(y, leaves[2]), at::mm(y, leaves[3]).t()) * 0.125, -1);
    const Tensor mixed = x + at::mm(at::mm(scores, at::mm(y, leaves[4])), leaves[5]);
    return mixed + at::mm(at::gelu(at::mm(mixed, leaves[6])), leaves[7]);
  });
}

/// Ops on few numbers, with products that keep kernels apart.
Workload tiny(at::IntArrayRef sizes, at::TensorOptions of) {
  const Inputs in(sizes, of);
  const Tensor square = at::randn({sizes.back(), sizes.back()}, of) / 4;
  return pattern(in, {in.x}, 500, [in, square] {
    Tensor y = in.x;
    for (int i = 0; i < 200; ++i) y = at::tanh(at::sin(at::mm(y, square)) * 1.5) + y;
    return y;
  });
}

struct Named {
  const char* name;
  Workload (*build)(at::IntArrayRef, at::TensorOptions);
};

Row row_of(const Named& one, const std::vector<int64_t>& sizes, at::ScalarType type) {
  std::string name = one.name;
  for (size_t i = 0; i < sizes.size(); ++i) name += (i == 0 ? "/" : "x") + std::to_string(sizes[i]);
  name += std::string("/") + (type == at::kFloat ? "float32" : "bfloat16");
  return {name, [build = one.build, sizes, type](c10::Device device) { return build(sizes, at::TensorOptions(device).dtype(type)); }};
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
        Named{"softmax", softmax}, Named{"layer_norm", layer_norm}, Named{"rms_norm", rms_norm}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) add(one, {8192, 4096}, type);
    add(one, {64, 256}, at::kFloat);
  }
  add({"softmax", softmax}, {4096, 50304}, at::kBFloat16);
  add({"chain", chain}, {64, 256}, at::kFloat);
  return all;
}

}  // namespace hindcast::bench::gpu
