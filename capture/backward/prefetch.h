#pragma once
// Prefetches memory that will be read soon. Nothing is read, so a stale address does no harm.

#include "capture/backward/libtorch_access.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace hindcast::capture {

inline void prefetch_bytes(const void* first, size_t count) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < count; at += kLine) __builtin_prefetch(static_cast<const char*>(first) + at);
}

// Prefetches what a node's field points to, not the field itself, which lies in the node. The caller holds the node's mutex.
inline void prefetch(const at::Tensor& tensor) {
  if (tensor.defined()) prefetch_bytes(tensor.unsafeGetTensorImpl(), sizeof(c10::TensorImpl));
}
inline void prefetch(const torch::autograd::SavedVariable& variable) { prefetch(saved_data(variable)); }
inline void prefetch(const std::vector<torch::autograd::SavedVariable>& variables) {
  for (const auto& variable : variables) prefetch(variable);
}
inline void prefetch(const std::vector<c10::SymInt>& sizes) { __builtin_prefetch(sizes.data()); }

}  // namespace hindcast::capture
