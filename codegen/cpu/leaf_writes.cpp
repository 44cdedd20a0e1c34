#include "codegen/cpu/leaf_writes.h"

#include "base/check.h"

#include <cstring>

namespace hindcast::codegen::cpu {
namespace {

template <class T>
void add(char* to, const char* from, int64_t count) {
  T* const sums = reinterpret_cast<T*>(to);
  const T* const terms = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) sums[i] += terms[i];
}

}  // namespace

void write_to_leaf(const LeafWrites::Write& write, const at::Tensor& result) {
  const auto* values = static_cast<const char*>(result.const_data_ptr());
  if (write.adds) {
    add_elements(write.type(), write.memory, values, result.numel());
  } else {
    std::memcpy(write.memory, values, result.nbytes());
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

// Negative zeros: -0 + x has the bits of x, even if x is a zero. The sign is in the last byte.
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

}  // namespace hindcast::codegen::cpu
