#include "codegen/kernel/plain.h"

namespace hindcast::codegen {

c10::DispatchKeySet plain_keys(c10::Device of) {
  const c10::DispatchKey dense = c10::computeDispatchKey(std::nullopt, std::nullopt, of);
  const c10::BackendComponent device = c10::toBackendComponent(dense);
  return c10::DispatchKeySet(dense) | c10::getAutogradRelatedKeySetFromBackend(device) | c10::getAutocastRelatedKeySetFromBackend(device);
}

bool is_plain(const at::Tensor& tensor, c10::DispatchKeySet plain) {
  if ((tensor.key_set() & plain) != tensor.key_set() || tensor.is_inference() || tensor.requires_grad()) return false;
  return tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr || !tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace hindcast::codegen
