#pragma once
// Parts of a molecular dynamics engine: atoms, their neighbours, and the equations of motion.

#include <torch/torch.h>

#include <cstdint>
#include <functional>

namespace molecular_dynamics {

struct Atoms {
  torch::Tensor positions, velocities;  // [atoms, 3], float32
  torch::Tensor species;                // [atoms], int64: 0 or 1
};

/// On a cubic lattice, randomly displaced, at rest.
Atoms cluster(std::int64_t atoms);

/// Pairs of atoms that are nearer than `radius`, each in both directions: [2, pairs], int64.
torch::Tensor pairs_within(const torch::Tensor& positions, double radius);

/// Minus the gradient of the energy: [atoms, 3]. `energy` returns a tensor of one element.
torch::Tensor forces_of(const std::function<torch::Tensor(const torch::Tensor& positions)>& energy, const torch::Tensor& positions);

/// One step of velocity Verlet. A weak spring holds the cluster together. Returns the forces at the new positions.
torch::Tensor move(Atoms& atoms, const torch::Tensor& forces,
                   const std::function<torch::Tensor(const torch::Tensor& positions)>& new_forces);

}  // namespace molecular_dynamics
