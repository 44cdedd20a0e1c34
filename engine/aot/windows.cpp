#include "engine/aot/windows.h"

#include <algorithm>
#include <unordered_map>

namespace hindcast::engine {
namespace {

struct Range {
  int64_t begin = 0, end = 0;  // in elements
};

Range range_of(const at::Tensor& tensor) {
  const int64_t begin = tensor.storage_offset();
  if (tensor.numel() == 0) return {begin, begin};
  int64_t end = begin + 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) end += (tensor.size(dim) - 1) * tensor.stride(dim);
  return {begin, end};
}

}  // namespace

bool are_windows(const std::vector<at::Tensor>& inputs) {
  const auto may_be = [](const at::Tensor& input) { return input.defined() && !input.is_inference() && input.is_view(); };
  if (std::none_of(inputs.begin(), inputs.end(), may_be)) return false;
  std::unordered_map<const c10::TensorImpl*, std::vector<Range>> by_base;
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || input.is_inference() || !(input.is_floating_point() || input.is_complex())) continue;
    const at::TensorBase& base = input.is_view() ? input._base() : static_cast<const at::TensorBase&>(input);
    auto& others = by_base[base.unsafeGetTensorImpl()];
    const Range range = range_of(input);
    const auto meets = [&](const Range& other) { return range.begin < other.end && other.begin < range.end; };
    if (std::any_of(others.begin(), others.end(), meets)) return true;
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
