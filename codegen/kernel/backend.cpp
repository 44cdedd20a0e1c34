#include "codegen/kernel/backend.h"

#include "base/check.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

namespace hindcast::codegen {

at::Tensor Backend::vector_norm(at::TensorList tensors, double order) const {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, order)), order, std::nullopt, /*keepdim=*/false, at::kDouble);
}

std::string Backend::why_not_recorded(c10::Device device) const { return base::format("work on {} is not recorded", device.str()); }

std::unique_ptr<Recording> Backend::record(c10::Device device, c10::function_ref<void()> /*give*/) const {
  HC_UNSUPPORTED("{}", why_not_recorded(device));
}

}  // namespace hindcast::codegen
