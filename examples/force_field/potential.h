#pragma once
// The training data: clusters of atoms held together by a Morse potential, and their neighbours.

#include <torch/torch.h>

#include <cstdint>

namespace force_field {

/// Pairs of atoms within the cutoff, each in both directions: atom `to[e]` feels atom `of[e]`. int64, one dim.
struct Pairs {
  torch::Tensor to, of;
};

struct Cluster {
  torch::Tensor positions;  // [atoms, 3]
  Pairs pairs;
  torch::Tensor energy, energy_per_atom;  // no dims
  torch::Tensor forces;                   // [atoms, 3]: minus the gradient of the energy
};

inline constexpr double kCutoff = 2.5;

Pairs pairs_of(const torch::Tensor& positions);
/// The cluster with its exact energy and forces.
Cluster labelled(const torch::Tensor& positions);
/// `atoms` of them on a cubic lattice, randomly displaced.
Cluster random_cluster(std::int64_t atoms);

}  // namespace force_field
