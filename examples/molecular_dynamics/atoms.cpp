#include "examples/molecular_dynamics/atoms.h"

#include <cmath>

namespace molecular_dynamics {
namespace {

constexpr double kTimeStep = 0.005;
constexpr double kSpring = 0.02;

}  // namespace

Atoms cluster(std::int64_t atoms) {
  const auto edge = static_cast<std::int64_t>(std::ceil(std::cbrt(static_cast<double>(atoms))));
  const auto line = torch::arange(edge, torch::kFloat) * 1.4;
  const auto lattice = torch::cartesian_prod({line, line, line}).slice(0, 0, atoms);
  const auto positions = lattice + 0.1 * torch::randn({atoms, 3});
  return {positions - positions.mean(0), torch::zeros({atoms, 3}), torch::randint(2, {atoms})};
}

torch::Tensor pairs_within(const torch::Tensor& positions, double radius) {
  const torch::NoGradGuard no_grad;
  const auto is_pair = (torch::cdist(positions, positions) < radius).logical_and(torch::eye(positions.size(0)) == 0);
  return is_pair.nonzero().t().contiguous();
}

torch::Tensor forces_of(const std::function<torch::Tensor(const torch::Tensor&)>& energy, const torch::Tensor& positions) {
  const auto x = positions.detach().requires_grad_();
  energy(x).backward({}, /*retain_graph=*/c10::nullopt, /*create_graph=*/false, std::vector<torch::Tensor>{x});
  return -x.grad();
}

torch::Tensor move(Atoms& atoms, const torch::Tensor& forces, const std::function<torch::Tensor(const torch::Tensor&)>& new_forces) {
  const auto half = atoms.velocities + 0.5 * kTimeStep * (forces - kSpring * atoms.positions);
  atoms.positions = atoms.positions + kTimeStep * half;
  auto next = new_forces(atoms.positions);
  atoms.velocities = half + 0.5 * kTimeStep * (next - kSpring * atoms.positions);
  return next;
}

}  // namespace molecular_dynamics
