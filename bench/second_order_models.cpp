// Losses that contain gradients: force fields, a physics-informed net, a gradient penalty. The same as those of bench/peer_rows.py.

#include "bench/step_models.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <memory>
#include <utility>

namespace hindcast::bench {
namespace {

/// Parameters, in the order of creation.
class Parameters {
 public:
  at::Tensor random(at::IntArrayRef sizes, int64_t fan_in) { return keep(at::randn(sizes) / std::sqrt(static_cast<double>(fan_in))); }
  at::Tensor zeros(int64_t width) { return keep(at::zeros({width})); }
  Tensors take() { return std::move(made_); }

 private:
  at::Tensor keep(at::Tensor values) {
    made_.push_back(std::move(values).requires_grad_());
    return made_.back();
  }
  Tensors made_;
};

struct Linear {
  at::Tensor weight, bias;
  Linear(Parameters& make, int64_t in, int64_t out) : weight(make.random({out, in}, in)), bias(make.zeros(out)) {}
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

std::vector<Linear> linears(Parameters& make, at::IntArrayRef widths) {
  std::vector<Linear> layers;
  for (size_t i = 1; i < widths.size(); ++i) layers.emplace_back(make, widths[i - 1], widths[i]);
  return layers;
}

template <class Activation>
at::Tensor run(const std::vector<Linear>& layers, at::Tensor x, Activation activation) {
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i](i == 0 ? x : activation(x));
  return x;
}

at::Tensor slope_of(const at::Tensor& value, const at::Tensor& of) {
  return torch::autograd::grad({value.sum()}, {of}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

AotWork of_loss(Parameters& make, std::function<at::Tensor()> loss) {
  return {.function = [loss = std::move(loss)](const Tensors&) { return loss(); }, .arguments = {}, .leaves = make.take(), .incoming = {}};
}

// The Laplacian of a net has a target.
AotWork pinn(int64_t points) {
  Parameters make;
  const auto layers = linears(make, {2, 64, 64, 64, 1});
  const at::Tensor where = at::rand({points, 2}), wanted = at::randn({points});
  return of_loss(make, [=] {
    const at::Tensor x = where.detach().requires_grad_();
    const at::Tensor slope = slope_of(run(layers, x, at::tanh), x);
    at::Tensor laplacian;
    for (const int64_t axis : {0, 1}) {
      const at::Tensor second = slope_of(slope.select(1, axis), x).select(1, axis);
      laplacian = laplacian.defined() ? laplacian + second : second;
    }
    return at::mse_loss(laplacian, wanted);
  });
}

// A critic of WGAN-GP.
AotWork gradient_penalty(int64_t batch) {
  Parameters make;
  const auto layers = linears(make, {64, 128, 128, 1});
  const at::Tensor real = at::randn({batch, 64}), made = at::randn({batch, 64}), share = at::rand({batch, 1});
  return of_loss(make, [=] {
    const auto critic = [&](const at::Tensor& x) { return run(layers, x, [](const at::Tensor& y) { return at::silu(y); }); };
    const at::Tensor between = (share * real + (1 - share) * made).detach().requires_grad_();
    const at::Tensor slope = slope_of(critic(between), between);
    return (critic(made) - critic(real)).mean() + 10 * (slope.norm(2, 1) - 1).square().mean();
  });
}

// Energies and forces like SchNet's: each atom sees all others of its molecule, at most 27.
AotWork schnet(int64_t molecules, int64_t atoms) {
  constexpr int64_t kWidth = 64, kFilters = 32, kBlocks = 3;
  Parameters make;
  const at::Tensor kinds = make.random({5, kWidth}, kWidth);
  std::vector<std::pair<Linear, Linear>> filter_nets, updates;
  for (int64_t i = 0; i < kBlocks; ++i) filter_nets.emplace_back(Linear(make, kFilters, kWidth), Linear(make, kWidth, kWidth));
  for (int64_t i = 0; i < kBlocks; ++i) updates.emplace_back(Linear(make, kWidth, kWidth), Linear(make, kWidth, kWidth));
  const Linear readout(make, kWidth, kWidth / 2), energy_of(make, kWidth / 2, 1);
  const at::Tensor of_one = at::ones({atoms, atoms}).fill_diagonal_(0).nonzero();
  Tensors pairs;
  for (int64_t i = 0; i < molecules; ++i) pairs.push_back(of_one + i * atoms);
  const at::Tensor edges = at::cat(pairs), to = edges.select(1, 0).contiguous(), from = edges.select(1, 1).contiguous();
  const at::Tensor centers = at::linspace(0, 5, kFilters), axis = at::arange(3, at::kFloat);
  const at::Tensor lattice = at::cartesian_prod({axis, axis, axis}).narrow(0, 0, atoms).repeat({molecules, 1});
  const at::Tensor places = 1.2 * lattice + 0.1 * at::randn(lattice.sizes()), kind = at::randint(5, {molecules * atoms}, at::kLong);
  const at::Tensor energies = at::randn({molecules}), forces = at::randn(lattice.sizes());
  return of_loss(make, [=] {
    const at::Tensor positions = places.detach().requires_grad_();
    const at::Tensor apart = positions.index_select(0, to) - positions.index_select(0, from);
    const at::Tensor distance = ((apart * apart).sum(1) + 1e-6).sqrt();
    const at::Tensor near = at::exp(-2 * (distance.unsqueeze(1) - centers).square());
    at::Tensor x = kinds.index_select(0, kind);
    for (size_t i = 0; i < updates.size(); ++i) {
      const at::Tensor weights = filter_nets[i].second(at::softplus(filter_nets[i].first(near)));
      const at::Tensor messages = updates[i].first(x).index_select(0, from) * weights / atoms;
      x = x + at::softplus(updates[i].second(at::zeros_like(x).index_add(0, to, messages)));
    }
    const at::Tensor energy = energy_of(at::softplus(readout(x))).view({molecules, atoms}).mean(1);
    return at::mse_loss(energy, energies) + at::mse_loss(-slope_of(energy, positions), forces);
  });
}

}  // namespace

std::vector<StepModel> second_order_models() {
  return {
      {"schnet/16x12", [] { return schnet(16, 12); }},
      {"schnet/1x12", [] { return schnet(1, 12); }},
      {"pinn/2-64-64-64-1/b1024", [] { return pinn(1024); }},
      {"pinn/2-64-64-64-1/b128", [] { return pinn(128); }},
      {"gradient_penalty/64-128-128-1/b64", [] { return gradient_penalty(64); }},
  };
}

}  // namespace hindcast::bench
