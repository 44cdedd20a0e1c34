#include "engine/aot/separate_gradients.h"

#include "engine/aot/element_range.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace hindcast::engine {
namespace {

struct Taken {
  ElementRange range;
  const c10::TensorImpl* tensor = nullptr;
};

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
  std::unordered_map<const void*, std::vector<Taken>> known;  // by storage
  bool has_copied = false;
  for (at::Tensor& gradient : gradients) {
    if (!gradient.defined() || !gradient.has_storage()) continue;
    const Taken taken{range_of(gradient), gradient.unsafeGetTensorImpl()};
    auto& others = known[gradient.storage().unsafeGetStorageImpl()];
    const bool is_shared = std::any_of(others.begin(), others.end(), [&](const Taken& other) {
      return taken.range.meets(other.range) && (same == SameTensor::Copied || taken.tensor != other.tensor);
    });
    others.push_back(taken);
    if (!is_shared) continue;
    const at::AutoDispatchBelowADInplaceOrView below;
    gradient = gradient.clone();
    has_copied = true;
  }
  return has_copied;
}

}  // namespace hindcast::engine
