#include "capture/same_bits.h"
#include "capture/trace.h"
#include "engine/base/format.h"

#include <ATen/Functions.h>

namespace hindcast::capture {

at::Tensor clone_exactly(const at::Tensor& tensor) {
  if (tensor.is_conj()) return at::conj(clone_exactly(at::conj(tensor)));
  if (tensor.is_neg()) return at::_neg_view(clone_exactly(at::_neg_view(tensor)));
  int64_t span = tensor.numel() == 0 ? 0 : 1;  // elements from the first to the last, gaps included
  for (int64_t d = 0; span > 0 && d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
  const auto past_line = [](const at::Tensor& t) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64); };
  const int64_t item = static_cast<int64_t>(tensor.element_size());
  const at::Tensor memory = at::empty({span + 64 / item}, tensor.options());
  const int64_t offset = (past_line(tensor) - past_line(memory) + 64) % 64 / item;
  memory.narrow(0, offset, span).copy_(at::as_strided(tensor, {span}, {1}));
  return at::as_strided(memory, tensor.sizes(), tensor.strides(), offset);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b, Zeros zeros) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  const at::Tensor left = a.is_complex() ? at::view_as_real(a.resolve_conj()) : a;
  const at::Tensor right = b.is_complex() ? at::view_as_real(b.resolve_conj()) : b;
  at::Tensor same = left == right;
  if (left.is_floating_point()) {
    if (zeros == Zeros::Signed) same = at::logical_and(same, at::signbit(left) == at::signbit(right));
    same = at::logical_or(same, at::logical_and(left != left, right != right));
  }
  return same.all().item<bool>();
}

std::unordered_map<uint32_t, at::Tensor> ReplayCheck::replay(const Graph& graph) const {
  std::unordered_map<uint32_t, at::Tensor> values;
  for (const auto& [value, tensor] : inputs) {
    if (value.defined()) values[value.index] = tensor;
  }
  graph.replay(values);
  return values;
}

size_t ReplayCheck::footprint() const {
  size_t bytes = 0;
  for (const auto* list : {&inputs, &results}) {
    for (const auto& [value, tensor] : *list) {
      if (tensor.defined() && tensor.has_storage()) bytes += tensor.storage().nbytes();
    }
  }
  return bytes;
}

std::optional<std::string> ReplayCheck::find_difference(const Graph& graph, Zeros zeros) const {
  graph.verify();
  const auto values = replay(graph);
  for (const auto& [value, tensor] : results) {
    if (!value.defined()) continue;
    const auto found = values.find(value.index);
    if (found == values.end()) return base::format("value {} is not made by the replay", value.index);
    if (!same_bits(found->second, tensor, zeros)) return base::format("value {} is not what the capture computed", value.index);
  }
  return std::nullopt;
}

}  // namespace hindcast::capture
