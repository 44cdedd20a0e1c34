#pragma once
// What the net learns: clusters of atoms that a Morse potential holds together, and their neighbours.

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
  torch::Tensor forces;                   // [atoms, 3]: less the gradient of the energy
};

inline constexpr double kCutoff = 2.5;

Pairs pairs_of(const torch::Tensor& positions);
/// The energy and its forces, both exact.
Cluster labelled(const torch::Tensor& positions);
/// `atoms` of them on a cubic lattice, shaken.
Cluster random_cluster(std::int64_t atoms);

}  // namespace force_field
