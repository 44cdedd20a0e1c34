#pragma once
// Distinguishes tensors that share memory, and the states of one tensor before and after a write.

#include "capture/graph/shared_memory.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>

namespace hindcast::capture {

/// 0 for an inference tensor, which does not count writes.
inline uint32_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version()); }

/// Makes both share a version counter: a write to either invalidates what autograd saved of both.
inline void share_version(const at::Tensor& tensor, const at::Tensor& with) {
  if (!tensor.is_inference() && !with.is_inference())
    torch::autograd::impl::set_version_counter(tensor, torch::autograd::impl::version_counter(with));
}

/// Has the same memory and version, without history.
inline at::Tensor without_history(const at::Tensor& tensor) { return tensor.tensor_data(); }

inline bool is_same_place(const at::Tensor& a, const at::Tensor& b) {
  return shares_memory(a, b) && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

/// True if the tensor's history begins at neither of these edges: it was written to.
inline bool has_another_history(const at::Tensor& tensor, const torch::autograd::Edge& one, const torch::autograd::Edge& other) {
  if (!tensor.defined() || !tensor.requires_grad()) return false;
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(tensor);
  return edge != one && edge != other;
}

}  // namespace hindcast::capture
