#include "engine/aot/windows.h"

#include "engine/aot/element_range.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <unordered_map>

namespace hindcast::engine {
bool are_windows(const std::vector<at::Tensor>& inputs) {
  const auto may_be = [](const at::Tensor& input) { return input.defined() && !input.is_inference() && input.is_view(); };
  if (std::none_of(inputs.begin(), inputs.end(), may_be)) return false;
  std::unordered_map<const c10::TensorImpl*, std::vector<ElementRange>> by_base;
  for (const at::Tensor& input : inputs) {
    if (may_be(input) && input.requires_grad() && at::has_internal_overlap(input) == at::MemOverlap::Yes) return true;
    if (!input.defined() || input.is_inference() || !(input.is_floating_point() || input.is_complex())) continue;
    const at::TensorBase& base = input.is_view() ? input._base() : static_cast<const at::TensorBase&>(input);
    auto& others = by_base[base.unsafeGetTensorImpl()];
    const ElementRange range = range_of(input);
    if (std::any_of(others.begin(), others.end(), [&](const ElementRange& other) { return range.meets(other); })) return true;
    others.push_back(range);
  }
  return false;
}

std::vector<int64_t> versions_of(const std::vector<at::Tensor>& inputs) {
  std::vector<int64_t> versions;
  for (const at::Tensor& input : inputs) versions.push_back(input.defined() && !input.is_inference() ? input._version() : 0);
  return versions;
}

}  // namespace hindcast::engine
