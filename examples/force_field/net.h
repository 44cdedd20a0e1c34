#pragma once
// A small SchNet: atoms exchange messages with their neighbours, and the energy of a cluster is the sum over its atoms.

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "examples/force_field/potential.h"

namespace force_field {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 32, std::int64_t blocks = 2);
  /// Energies per atom.
  torch::Tensor forward(const torch::Tensor& positions, const torch::Tensor& to, const torch::Tensor& of);

 private:
  struct Block {
    torch::nn::Linear first{nullptr}, second{nullptr}, before{nullptr}, behind{nullptr};
  };
  torch::Tensor centers_, start_;
  std::vector<Block> blocks_;
  torch::nn::Linear hidden_{nullptr}, energy_{nullptr};
};
TORCH_MODULE(Net);

/// The loss of the mean energy per atom and of the forces, which are gradients of the net: its backward differentiates them.
torch::Tensor loss_of(NetImpl& net, const torch::Tensor& positions, const torch::Tensor& to, const torch::Tensor& of,
                      const torch::Tensor& energy_per_atom, const torch::Tensor& forces);

/// The net's forces, for use without training.
torch::Tensor forces_of(NetImpl& net, const torch::Tensor& positions, const Pairs& pairs);

}  // namespace force_field
