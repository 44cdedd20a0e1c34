#include "engine/aot/aot_module.h"

#include <torch/nn/module.h>

namespace hindcast::engine {

std::string facts_of(const torch::nn::Module& module) {
  std::string facts;
  const auto add = [&](const void* bytes, size_t size) { facts.append(static_cast<const char*>(bytes), size); };
  const auto add_tensors = [&](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      const void* identity = tensor.unsafeGetTensorImpl();
      add(&identity, sizeof(identity));
    }
  };
  module.apply([&](const torch::nn::Module& part) {
    const bool trains = part.is_training();
    add(&trains, sizeof(trains));
  });
  add_tensors(module.parameters());
  add_tensors(module.buffers());
  return facts;
}

}  // namespace hindcast::engine
