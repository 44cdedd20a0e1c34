#include "hindcast/aot_module.h"

#include <torch/nn/module.h>

#include <typeinfo>
#include <unordered_map>

namespace hindcast::detail {

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
    const void* const which[] = {&part, &typeid(part)};
    add(&trains, sizeof(trains));
    add(which, sizeof(which));
  });
  add_tensors(module.parameters());
  add_tensors(module.buffers());
  return facts;
}

std::vector<std::string> names_in(const torch::nn::Module& module, const std::vector<at::Tensor>& tensors) {
  std::unordered_map<const at::TensorImpl*, std::string> known;
  for (const auto& each : module.named_parameters()) known.emplace(each.value().unsafeGetTensorImpl(), each.key());
  for (const auto& each : module.named_buffers()) known.emplace(each.value().unsafeGetTensorImpl(), each.key());
  std::vector<std::string> names;
  for (const at::Tensor& tensor : tensors) {
    const auto found = known.find(tensor.unsafeGetTensorImpl());
    names.push_back(found == known.end() ? std::string() : found->second);
  }
  return names;
}

}  // namespace hindcast::detail
