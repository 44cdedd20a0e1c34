// Pointwise ops on tensors of all layouts.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tests/gpu/programs/device_program.h"

namespace hindcast::tests {
namespace {

Tensors chain_of(const Setting& setting, const Tensors& leaves) {
  const at::Tensor y = (leaves[0] * leaves[1]).tanh() * leaves[0] + leaves[1].sigmoid() * 0.5;
  backward_of((y * y).neg().exp().add(1), setting);
  return grads_of(leaves);
}

Tensors chain(const Setting& setting, int64_t numel) { return chain_of(setting, {setting.leaf({numel}), setting.leaf({numel})}); }

Tensors broadcasts(const Setting& setting) {
  const Tensors leaves{setting.leaf({33, 41}), setting.leaf({41}), setting.leaf({33, 1}), setting.leaf({})};
  backward_of(((leaves[0] + leaves[1]).tanh() * leaves[2]).sigmoid() * leaves[3], setting);
  return grads_of(leaves);
}

Tensors turned(const Setting& setting) {
  const Tensors leaves{setting.leaf({65, 40}), setting.leaf({40, 65}), setting.leaf({3, 5, 7})};
  const at::Tensor y = (leaves[0].t() * leaves[1]).tanh() * leaves[1];
  const at::Tensor z = (leaves[2].permute({2, 0, 1}) * 2).tanh();
  backward_of(at::cat({y.reshape(-1), (z * z).reshape(-1)}), setting);
  return grads_of(leaves);
}

Tensors every_second(const Setting& setting) {
  const Tensors leaves{setting.leaf({9, 66}), setting.leaf({9, 33})};
  backward_of((leaves[0].slice(1, 0, 66, 2) * leaves[1]).tanh() * leaves[1], setting);
  return grads_of(leaves);
}

Tensors channels_last(const Setting& setting) {
  const auto like_images = [&] {
    return setting.constant({3, 5, 7, 9}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  };
  const Tensors leaves{like_images(), like_images(), setting.leaf({5, 1, 1})};
  backward_of((leaves[0] * leaves[1]).tanh() * leaves[0] + leaves[2], setting);
  return grads_of(leaves);
}

// A mask, integers of two sizes, and one float64 tensor next to them.
Tensors other_types(const Setting& setting) {
  const Tensors leaves{setting.leaf({37, 19}), setting.leaf({37, 19})};
  const at::Tensor mask = setting.constant({37, 19}) > 0, counts = setting.integers(5, {37, 19}),
                   few = setting.integers(3, {19}).to(at::kInt);
  const at::Tensor y = at::where(mask, leaves[0] * counts, leaves[1] + few) * mask;
  backward_of((y * leaves[0]).tanh().masked_fill(mask, 0.25) + y.clamp(-1, 1), setting);
  return grads_of(leaves);
}

Tensors complex_numbers(const Setting& setting) {
  const Tensors leaves{setting.leaf({33, 2}), setting.leaf({33, 2})};
  const at::Tensor a = at::view_as_complex(leaves[0]), b = at::view_as_complex(leaves[1]);
  backward_of(at::view_as_real((a * b + b.conj()) * a), setting);
  return grads_of(leaves);
}

Tensors zeros_around(const Setting& setting) {
  const Tensors leaves{setting.leaf({10, 31}), setting.leaf({11, 36})};
  const at::Tensor y = (at::constant_pad_nd(leaves[0], {2, 3, 1, 0}) * leaves[1]).tanh();
  backward_of(y.narrow(1, 3, 20) * y.narrow(1, 10, 20) + leaves[0].narrow(0, 0, 1).narrow(1, 0, 20), setting);
  return grads_of(leaves);
}

// The gradients of parts are written directly into the whole: in one piece, along rows, in pieces too short for it.
Tensors parts(const Setting& setting, at::IntArrayRef sizes, int64_t dim) {
  const Tensors leaves{setting.leaf(sizes)};
  const auto of = (leaves[0] * 2).chunk(2, dim);
  backward_of(at::silu(of[0]) * of[1].tanh(), setting);
  return grads_of(leaves);
}

Tensors nothing(const Setting& setting) {
  const Tensors leaves{setting.leaf({0, 5}), setting.leaf({5})};
  backward_of((leaves[0] * leaves[1]).tanh() * leaves[1], setting);
  return grads_of(leaves);
}

Tensors one_number(const Setting& setting) {
  const Tensors leaves{setting.leaf({}), setting.leaf({}), setting.leaf({1, 1})};
  backward_of((leaves[0] * leaves[1]).tanh() * leaves[0] + leaves[2].exp() * leaves[1], setting);
  return grads_of(leaves);
}

// The same kernel for sizes that are multiples of a vector and that are not.
Tensors changing_sizes(const Setting& setting) {
  const int64_t rows = std::vector<int64_t>{3, 5, 32, 9}[static_cast<size_t>(setting.step) % 4];
  const int64_t columns = std::vector<int64_t>{8, 7, 64, 33}[static_cast<size_t>(setting.step) % 4];
  const Tensors leaves{setting.leaf({rows, columns}), setting.leaf({columns}), setting.leaf({rows, 1})};
  backward_of(at::softmax((leaves[0] + leaves[1]).tanh() * leaves[2], -1) * leaves[0], setting);
  return grads_of(leaves);
}

// Operands that do not start at a vector's alignment.
Tensors not_aligned(const Setting& setting) {
  const at::Tensor buffer = setting.leaf({1 + 5 * 64});
  const Tensors leaves{buffer, setting.leaf({5, 64})};
  const at::Tensor x = buffer.narrow(0, 1, 5 * 64).view({5, 64});
  backward_of((x * leaves[1]).tanh() * x, setting);
  return grads_of(leaves);
}

// LibTorch's kernels for CUDA and for the CPU choose different branches for NaN. The number of elements fills the CPU's vectors: it treats
// the last few in yet another way.
Tensors of_nan(const Setting& setting) {
  const at::Tensor with_nan = setting.constant({64, 64});
  with_nan.slice(1, 0, 64, 7).fill_(NAN);
  const auto leaf = [&] { return with_nan.clone().set_requires_grad(true); };
  const Tensors leaves{leaf(), leaf(), leaf(), leaf(), leaf(), leaf(), leaf()};
  at::Tensor in_place = leaves[6] * 1;
  const Tensors results{at::hardtanh(leaves[0]),     at::elu(leaves[1]),        at::hardshrink(leaves[2]), at::softshrink(leaves[3]),
                        at::logit(leaves[4], 0.125), at::leaky_relu(leaves[5]), at::elu_(in_place)};
  const at::Tensor weights = setting.constant({64, 64});
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& result : results) gradients.push_back(weights * 2);
  torch::autograd::backward(results, gradients);
  Tensors shown;
  for (const at::Tensor& gradient : grads_of(leaves)) {
    shown.push_back(gradient.isnan().to(gradient.scalar_type()));
    shown.push_back(gradient.nan_to_num());
  }
  return shown;
}

}  // namespace

std::vector<DeviceProgram> pointwise_programs() {
  std::vector<DeviceProgram> programs = {
      {"Broadcasts", broadcasts, kFloats},
      {"Turned", turned, kFloats, {"tiles"}},
      {"EverySecond", every_second},
      {"ChannelsLast", channels_last, kFloats},
      {"OtherTypes", other_types},
      {"ComplexNumbers", complex_numbers},
      {"ZerosAround", zeros_around, {at::kFloat, at::kDouble}, {"nest_each"}},
      {"Nothing", nothing, kFloats},
      {"OneNumber", one_number, kFloats},
      {"ChangingSizes", changing_sizes, kFloats, {"rows", "rows_each"}},
      {"NotAligned", not_aligned, kFloats},
      {"OfNan", of_nan},
      {"PartsInOnePiece",
       [](const Setting& setting) {
         return parts(setting, {40, 7}, 0);
       },
       kFloats},
      {"PartsAlongRows",
       [](const Setting& setting) {
         return parts(setting, {6, 80}, 1);
       },
       kFloats},
      {"ShortParts",
       [](const Setting& setting) {
         return parts(setting, {9, 6}, 1);
       }},
  };
  for (const int64_t numel : {1, 33, 4097, 70001}) {
    const auto run = [numel](const Setting& setting) { return chain(setting, numel); };
    programs.push_back({"ChainOf" + std::to_string(numel), run, kFloats, {numel > 70000 ? "dense" : "dense_few"}});
  }
  return programs;
}

}  // namespace hindcast::tests
