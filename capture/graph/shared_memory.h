#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace hindcast::capture {

/// The bytes of a storage, without `end`. NumPy and DLPack may lend one memory to several storages.
struct MemoryRange {
  uintptr_t begin = 0, end = 0;
  bool meets(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
};

/// `tensor` must have a storage.
inline MemoryRange memory_of(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  // Reads only the address, without checks that may throw.
  const auto begin = reinterpret_cast<uintptr_t>(storage._mutable_data_ptr_no_checks().get());
  return {begin, begin == 0 ? 0 : begin + storage.nbytes()};
}

/// Whether a write to one may be visible in the other.
inline bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() && (a.is_alias_of(b) || memory_of(a).meets(memory_of(b)));
}

}  // namespace hindcast::capture
