#include "engine/saved/slot.h"

#include "base/format.h"
#include "hooks/start_streams.h"

#include <c10/util/Exception.h>

namespace hindcast::engine {
namespace {

// Empty for tensors without sizes, or with symbolic ones.
std::vector<int64_t> sizes_of(const at::Tensor& tensor) {
  if (tensor.is_nested() || tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return {};
  return tensor.sizes().vec();
}

uint32_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version()); }

// LibTorch's own message, as without saved-tensor hooks.
std::string modified(const std::string& type, const std::vector<int64_t>& sizes, uint32_t now, uint32_t expected) {
  return base::format(
      "one of the variables needed for gradient computation has been modified by an inplace operation: [{} {}] is at version {}; "
      "expected version {} instead.",
      type, sizes, now, expected);
}

}  // namespace

SavedFacts::SavedFacts(const at::Tensor& tensor)
    : dtype_(tensor.scalar_type()),
      device_(tensor.device()),
      sizes_(sizes_of(tensor)),
      version_(version_of(tensor)),
      tensor_(tensor.getIntrusivePtr()) {}

std::string SavedFacts::text() const { return base::format("{} {} on {}", c10::toString(dtype_), sizes_, device_.str()); }

std::optional<std::string> SavedFacts::difference(const at::Tensor& other) const {
  const SavedFacts now(other);
  if (dtype_ == now.dtype_ && device_ == now.device_ && sizes_ == now.sizes_) return std::nullopt;
  return base::format("expected {} as in the forward, seen {}", text(), now.text());
}

void SavedFacts::check_version(const at::Tensor& other) const {
  const SavedFacts now(other);
  const bool is_same_tensor = tensor_ == now.tensor_;
  TORCH_CHECK(!is_same_tensor || version_ == now.version_, modified(other.toString(), sizes_, now.version_, version_));
}

Versioned::Versioned(const at::Tensor& tensor)
    : tensor_(tensor.requires_grad() ? tensor.detach() : tensor),
      version_(version_of(tensor)),
      stream_(hooks::current_stream_for(tensor)) {}

const at::Tensor& Versioned::checked() const {
  const uint32_t now = version_of(tensor_);
  TORCH_CHECK(now == version_, modified(tensor_.toString(), sizes_of(tensor_), now, version_));
  hooks::hand_over(tensor_, stream_);
  return tensor_;
}

}  // namespace hindcast::engine
