#pragma once
// What kernels write, autograd does not see.

#include <ATen/core/Tensor.h>

namespace hindcast::engine {

/// A graph that saved the tensor notices, as if an operator had changed it in place.
inline void has_changed(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace hindcast::engine
