#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace hindcast::engine {

/// What a TorchScript module's forward depends on besides its arguments and the contents of tensors: its attributes and those of its
/// submodules, as bytes. Tensors and objects are represented by their identity.
std::string facts_of(const torch::jit::Module& module);
/// The names that these tensors have as attributes of the module; empty for a tensor that is no attribute.
std::vector<std::string> names_in(const torch::jit::Module& module, const std::vector<at::Tensor>& tensors);

}  // namespace hindcast::engine
