#include "capture/same_bits.h"
#include "capture/trace.h"
#include "engine/base/format.h"

#include <ATen/Functions.h>

namespace hindcast::capture {

at::Tensor clone_exactly(const at::Tensor& tensor) {
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  if (!tensor.is_non_overlapping_and_dense()) copy = at::empty_like(tensor);
  return copy.copy_(tensor);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  const at::Tensor left = a.is_complex() ? at::view_as_real(a.resolve_conj()) : a;
  const at::Tensor right = b.is_complex() ? at::view_as_real(b.resolve_conj()) : b;
  return at::logical_or(left == right, at::logical_and(left != left, right != right)).all().item<bool>();
}

std::optional<std::string> ReplayCheck::find_difference(const Graph& graph) const {
  graph.verify();
  std::unordered_map<uint32_t, at::Tensor> values;
  for (const auto& [value, tensor] : inputs) {
    if (value.defined()) values[value.index] = tensor;
  }
  graph.replay(values);
  for (const auto& [value, tensor] : results) {
    if (!value.defined()) continue;
    const auto found = values.find(value.index);
    if (found == values.end()) return base::format("value {} is not made by the replay", value.index);
    if (!same_bits(found->second, tensor)) return base::format("value {} is not what the capture computed", value.index);
  }
  return std::nullopt;
}

}  // namespace hindcast::capture
