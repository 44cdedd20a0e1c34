#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace hindcast::engine {

/// What a TorchScript module's forward depends on besides its arguments and the contents of tensors: the attributes of it and of its
/// submodules as bytes. Of tensors and objects, their identity.
std::string facts_of(const torch::jit::Module& module);
/// Of tensors, their names as attributes of the module; empty: none has this name.
std::vector<std::string> names_in(const torch::jit::Module& module, const std::vector<at::Tensor>& tensors);

}  // namespace hindcast::engine
