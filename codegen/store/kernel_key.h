#pragma once
// The key of a compiled kernel: XXH3-128 over all that its bytes depend on.
//
// In the key, given by the caller in a fixed order:
//   the source text and the text of each file that it includes
//   the compiler's identity   its version and revision, the target, the CPU and its features, the flags that never change
//   the options               of this compile: level, vector width, and whatever is baked into the source's meaning
// Added here:
//   the format of the store   kStoreFormat, so that a file of another format is never even found
// Left out, since it changes no byte: names of graphs and nodes, sizes of tensors, which process asks.
//
// Only the hash is kept and compared. Two sources out of 2^64 would have to be tried to find two with one hash by accident.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace hindcast::codegen::store {

/// Changes when a file of the store would be read differently.
inline constexpr uint32_t kStoreFormat = 1;

struct KernelKey {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

/// Each part is hashed after its length: no two lists of parts have the same bytes.
KernelKey key_of(std::span<const std::string_view> parts);
inline KernelKey key_of(std::initializer_list<std::string_view> parts) { return key_of(std::span(parts.begin(), parts.size())); }

/// 32 hexadecimal digits.
std::string text_of(const KernelKey& key);

}  // namespace hindcast::codegen::store
