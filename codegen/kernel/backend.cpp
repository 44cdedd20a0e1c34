#include "codegen/kernel/backend.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

namespace hindcast::codegen {

at::Tensor Backend::vector_norm(at::TensorList tensors, double order) const {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors, order)), order, std::nullopt, /*keepdim=*/false, at::kDouble);
}

}  // namespace hindcast::codegen
