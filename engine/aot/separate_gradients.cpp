#include "engine/aot/separate_gradients.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace hindcast::engine {
namespace {

struct Extent {
  int64_t begin = 0, end = 0;  // in bytes of the storage
  const c10::TensorImpl* tensor = nullptr;
};

Extent extent_of(const at::Tensor& tensor) {
  int64_t elements = tensor.numel() == 0 ? 0 : 1;
  for (int64_t dim = 0; elements != 0 && dim < tensor.dim(); ++dim) elements += (tensor.size(dim) - 1) * tensor.stride(dim);
  const int64_t begin = tensor.storage_offset(), bytes = tensor.element_size();
  return {begin * bytes, (begin + elements) * bytes, tensor.unsafeGetTensorImpl()};
}

bool has_shared_storage(const at::Tensor& tensor) { return tensor.defined() && tensor.has_storage() && tensor.storage().use_count() > 1; }

// One tensor that occurs twice holds its storage once.
bool any_is_shared(std::span<const at::Tensor> gradients, SameTensor same) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (has_shared_storage(gradients[i])) return true;
    if (same == SameTensor::Kept || !gradients[i].defined()) continue;
    const auto earlier = gradients.first(i);
    if (gradients[i].use_count() > 1 &&
        std::any_of(earlier.begin(), earlier.end(), [&](const at::Tensor& other) { return other.is_same(gradients[i]); }))
      return true;
  }
  return false;
}

}  // namespace

bool separate_gradients(std::span<at::Tensor> gradients, SameTensor same) {
  if (!any_is_shared(gradients, same)) return false;
  std::unordered_map<const void*, std::vector<Extent>> known;  // by storage
  bool has_copied = false;
  for (at::Tensor& gradient : gradients) {
    if (!gradient.defined() || !gradient.has_storage()) continue;
    const Extent extent = extent_of(gradient);
    auto& others = known[gradient.storage().unsafeGetStorageImpl()];
    const bool is_shared = std::any_of(others.begin(), others.end(), [&](const Extent& other) {
      return extent.begin < other.end && other.begin < extent.end && (same == SameTensor::Copied || extent.tensor != other.tensor);
    });
    others.push_back(extent);
    if (!is_shared) continue;
    const at::AutoDispatchBelowADInplaceOrView below;
    gradient = gradient.clone();
    has_copied = true;
  }
  return has_copied;
}

}  // namespace hindcast::engine
