#pragma once
// TorchScript modules of a few lines each.

#include <hindcast/jit.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <string>

namespace hindcast::tests {

/// A module `Net` with a parameter `weight` of 8 x 8 and the method `forward`.
inline torch::jit::Module script_module(const std::string& forward) {
  torch::jit::Module module("Net");
  torch::manual_seed(4);
  module.register_parameter("weight", torch::randn({8, 8}).requires_grad_(), /*is_buffer=*/false);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define(forward);
  return module;
}

/// The same, operator by operator: LibTorch's optimizer has its own derivatives, which round differently.
inline torch::jit::Module stock_module(const std::string& forward) { return jit_prepare(script_module(forward)); }

inline const char* const kMlp = R"(
def forward(self, x: Tensor) -> Tensor:
    h = torch.tanh(torch.mm(x, self.weight))
    h = torch.sigmoid(torch.mm(h, self.weight)) * h
    return torch.sum(torch.exp(-h) * torch.cos(h))
)";

inline torch::Tensor rows(int64_t count, uint64_t seed = 1) {
  torch::manual_seed(seed);
  return torch::randn({count, 8}).requires_grad_();
}

}  // namespace hindcast::tests
