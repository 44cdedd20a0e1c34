#include "examples/force_field/net.h"

#include <string>

namespace force_field {

NetImpl::NetImpl(std::int64_t width, std::int64_t blocks) {
  constexpr std::int64_t kCenters = 24;
  centers_ = register_buffer("centers", torch::linspace(0, kCutoff, kCenters));
  start_ = register_parameter("start", torch::randn({1, width}));
  for (std::int64_t i = 0; i < blocks; ++i) {
    const auto linear = [&](const char* name, std::int64_t in) {
      return register_module(name + std::to_string(i), torch::nn::Linear(in, width));
    };
    blocks_.push_back({linear("first", kCenters), linear("second", width), linear("before", width), linear("behind", width)});
  }
  hidden_ = register_module("hidden", torch::nn::Linear(width, width));
  energy_ = register_module("energy", torch::nn::Linear(width, 1));
}

torch::Tensor NetImpl::forward(const torch::Tensor& positions, const torch::Tensor& to, const torch::Tensor& of) {
  const torch::Tensor apart = positions.index_select(0, to) - positions.index_select(0, of);
  const torch::Tensor distance = apart.square().sum(1).add(1e-9).sqrt();
  const torch::Tensor near = torch::exp(-12 * (distance.unsqueeze(1) - centers_).square());
  const torch::Tensor fade = (1 - (distance / kCutoff).square()).clamp_min(0).square().unsqueeze(1);
  torch::Tensor x = torch::zeros_like(positions).slice(1, 0, 1) + start_;  // reads no size as a number: one program for all clusters
  for (Block& block : blocks_) {
    const torch::Tensor weights = block.second(torch::silu(block.first(near))) * fade;
    const torch::Tensor messages = block.before(x).index_select(0, of) * weights;
    x = x + torch::silu(block.behind(torch::zeros_like(x).index_add(0, to, messages)));
  }
  return energy_(torch::silu(hidden_(x))).squeeze(1);
}

torch::Tensor loss_of(NetImpl& net, const torch::Tensor& positions, const torch::Tensor& to, const torch::Tensor& of,
                      const torch::Tensor& energy_per_atom, const torch::Tensor& forces) {
  const torch::Tensor x = positions.detach().requires_grad_();
  const torch::Tensor energies = net.forward(x, to, of);
  const torch::Tensor slope = torch::autograd::grad({energies.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  return (energies.mean() - energy_per_atom).square() + torch::mse_loss(-slope, forces);
}

torch::Tensor forces_of(NetImpl& net, const torch::Tensor& positions, const Pairs& pairs) {
  const torch::Tensor x = positions.detach().requires_grad_();
  return -torch::autograd::grad({net.forward(x, pairs.to, pairs.of).sum()}, {x})[0];
}

}  // namespace force_field
