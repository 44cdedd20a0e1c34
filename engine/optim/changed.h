#pragma once
// Version counters of tensors that kernels write, since autograd does not see these writes.

#include <ATen/core/Tensor.h>

namespace hindcast::engine {

/// Bumps the tensor's version, so that an autograd graph that saved it notices, as after an in-place operator.
inline void has_changed(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace hindcast::engine
