#include "codegen/kernel/leaf_requests.h"

#include "codegen/cpu/memory/empty_recycled.h"
#include "base/check.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hindcast::codegen {
namespace {

// From the first byte to behind the last.
struct Bytes {
  const char *begin, *end;
  bool overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

Bytes bytes_of(const at::Tensor& tensor) {
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  if (tensor.numel() == 0) return {begin, begin};
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

// A dense CPU tensor of LibTorch's own class, which adding in place changes and nothing else.
bool is_plain(const at::Tensor& grad) {
  static const c10::DispatchKeySet plain(
      {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::AutocastCPU});
  if ((grad.key_set() & plain) != grad.key_set() || grad.is_inference() || grad.requires_grad()) return false;
  return grad.unsafeGetTensorImpl()->autograd_meta() == nullptr || !grad._fw_grad(/*level=*/0).defined();
}

bool lies_like(const at::Tensor& grad, const ResultLayout& result) {
  if (grad.sizes() != at::IntArrayRef(result.sizes)) {  // another shape of it
    return grad.is_contiguous() && at::IntArrayRef(result.strides) == row_major_strides(result.sizes) &&
           grad.numel() == c10::multiply_integers(result.sizes);
  }
  for (int64_t d = 0; d < grad.dim(); ++d) {
    if (grad.size(d) != 1 && grad.stride(d) != result.strides[static_cast<size_t>(d)]) return false;
  }
  return true;
}

template <class T>
void add(char* to, const char* from, int64_t count) {
  T* const sums = reinterpret_cast<T*>(to);
  const T* const terms = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) sums[i] += terms[i];
}

}  // namespace

LeafWrites::LeafWrites(const Group& group, const Step& step, Slots& slots, c10::function_ref<ResultLayout(size_t store)> layout_of) {
  c10::SmallVector<Bytes, 16> taken;  // bytes that must not change meanwhile
  bool all_add = true;
  for (size_t i = 0; i < step.leaves.size(); ++i) {
    const auto [store, instr, takes_result] = group.leaves[i];
    if (i == 0 || group.leaves[i - 1].store != store) all_add = true;
    at::Tensor& slot = slots[step.leaves[i].slot];
    if (!slot.defined()) {
      all_add = false;
      continue;
    }
    const ResultLayout layout = layout_of(store);
    if (slot.is_same(buffer_wanted())) {
      slot = empty_strided_recycled(layout.sizes, layout.strides, layout.type);
      writes_.push_back({i, store, static_cast<char*>(slot.mutable_data_ptr()), layout.type, false});
      all_add = false;
      continue;
    }
    if (taken.empty()) {
      for (size_t load = 0; load < group.loads.size(); ++load) taken.push_back(bytes_of(slots[step.inputs[load].slot]));
    }
    const Bytes bytes = bytes_of(slot);
    if (slot.scalar_type() != layout.type || !is_plain(slot) || !lies_like(slot, layout) ||
        std::any_of(taken.begin(), taken.end(), [&](const Bytes& other) { return bytes.overlaps(other); })) {
      slot.reset();
      all_add = false;
      continue;
    }
    taken.push_back(bytes);
    writes_.push_back({i, store, static_cast<char*>(slot.mutable_data_ptr()), layout.type, true});
    slot.unsafeGetTensorImpl()->bump_version();
    kept_.push_back(std::exchange(slot, gradient_added()));
    const bool is_last = i + 1 == group.leaves.size() || group.leaves[i + 1].store != store;
    if (is_last && takes_result && all_add) only_added_.push_back(store);
  }
}

bool LeafWrites::is_only_added(size_t store) const { return std::find(only_added_.begin(), only_added_.end(), store) != only_added_.end(); }

void LeafWrites::write(size_t store, const at::Tensor& result) const {
  for (const Write& write : writes_) {
    if (write.store != store || result.numel() == 0) continue;
    const auto* values = static_cast<const char*>(result.const_data_ptr());
    if (write.adds) {
      add_elements(write.type, write.memory, values, result.numel());
    } else {
      std::memcpy(write.memory, values, result.nbytes());
    }
  }
}

LeafPointers::LeafPointers(const Group& group, const LeafWrites& leaves, int64_t length) {
  const auto* write = leaves.writes().begin();
  for (size_t i = 0; i < group.leaves.size(); ++i) {
    const size_t store = group.leaves[i].store;
    const bool is_wanted = write != leaves.writes().end() && write->leaf == i;
    const auto* const wanted = is_wanted ? write++ : nullptr;
    if (group.body.stores[store].leaves == 0) continue;
    const bool adds = is_wanted && wanted->adds;
    pointers_.push_back({is_wanted ? wanted->memory : nullptr, store, is_wanted, is_wanted && !adds});
    pointers_.push_back({adds ? wanted->memory : zeros(group.body.stores[store].type, length), store, adds, false});
  }
}

// Negative ones: -0 + x is x to the bit, also where x is a zero. The sign is in the last byte.
char* LeafPointers::zeros(at::ScalarType type, int64_t length) {
  const size_t size = c10::elementSize(type);
  std::vector<char>& elements = own_zeros_.emplace_back(static_cast<size_t>(length) * size);
  for (size_t i = size - 1; i < elements.size(); i += size) elements[i] = static_cast<char>(0x80);
  return elements.data();
}

void add_elements(at::ScalarType type, char* to, const char* from, int64_t count) {
  switch (type) {
    case at::ScalarType::Float:
      return add<float>(to, from, count);
    case at::ScalarType::Double:
      return add<double>(to, from, count);
    case at::ScalarType::BFloat16:
      return add<c10::BFloat16>(to, from, count);
    case at::ScalarType::Half:
      return add<c10::Half>(to, from, count);
    case at::ScalarType::ComplexFloat:
      return add<float>(to, from, 2 * count);
    case at::ScalarType::ComplexDouble:
      return add<double>(to, from, 2 * count);
    default:
      HC_CHECK(false, "a sum of {}", c10::toString(type));
  }
}

}  // namespace hindcast::codegen
