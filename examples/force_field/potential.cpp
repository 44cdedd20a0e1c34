#include "examples/force_field/potential.h"

#include <cmath>

namespace force_field {

namespace {

// Depth 1, width 1 / kStiffness, shifted so that it ends at 0 with slope 0.
constexpr double kStiffness = 2.0, kDistance = 1.0;

torch::Tensor morse(const torch::Tensor& distance) {
  const auto well = [](const torch::Tensor& r) { return (1 - torch::exp(-kStiffness * (r - kDistance))).square() - 1; };
  const torch::Tensor end = torch::full({1}, kCutoff, distance.options());
  const double decay = std::exp(-kStiffness * (kCutoff - kDistance)), slope = 2 * kStiffness * (1 - decay) * decay;
  return well(distance) - well(end) - slope * (distance - kCutoff);
}

}  // namespace

Pairs pairs_of(const torch::Tensor& positions) {
  const torch::NoGradGuard no_grad;
  torch::Tensor near = torch::cdist(positions, positions) < kCutoff;
  near.fill_diagonal_(false);
  const torch::Tensor pairs = near.nonzero();
  return {pairs.select(1, 0).contiguous(), pairs.select(1, 1).contiguous()};
}

Cluster labelled(const torch::Tensor& positions) {
  const torch::Tensor x = positions.detach().clone().requires_grad_();
  Cluster cluster{.positions = positions, .pairs = pairs_of(positions), .energy = {}, .energy_per_atom = {}, .forces = {}};
  const torch::Tensor apart = x.index_select(0, cluster.pairs.to) - x.index_select(0, cluster.pairs.of);
  const torch::Tensor energy = 0.5 * morse(apart.norm(2, 1)).sum();
  cluster.forces = -torch::autograd::grad({energy}, {x})[0];
  cluster.energy = energy.detach();
  cluster.energy_per_atom = cluster.energy / positions.size(0);
  return cluster;
}

Cluster random_cluster(std::int64_t atoms) {
  const auto side = static_cast<std::int64_t>(std::ceil(std::cbrt(static_cast<double>(atoms))));
  const torch::Tensor axis = torch::arange(side, torch::kFloat);
  const torch::Tensor lattice =
      torch::cartesian_prod({axis, axis, axis}).index_select(0, torch::randperm(side * side * side).slice(0, 0, atoms));
  return labelled(1.05 * lattice + 0.12 * torch::randn({atoms, 3}));
}

}  // namespace force_field
