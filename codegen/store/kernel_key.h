#pragma once
// The key of a compiled kernel: XXH3-128 over everything that its bytes depend on.
//
// In the key, passed by the caller in a fixed order:
//   the source text and the text of each file that it includes
//   the compiler's identity   its version and revision, the target, the CPU and its features, the constant flags
//   the options               of this compile: level, vector width, and whatever else affects the meaning of the source
// Added here:
//   the format of the store   kStoreFormat, so that a file of another format is never found
// Left out, since no byte depends on it: names of graphs and nodes, sizes of tensors, the process.
//
// Only the hash is stored and compared. An accidental collision is expected only after about 2^64 different sources.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace hindcast::codegen::store {

/// To be changed whenever the file format changes.
inline constexpr uint32_t kStoreFormat = 1;

struct KernelKey {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

/// Each part is hashed after its length, so that different lists of parts never hash the same bytes.
KernelKey key_of(std::span<const std::string_view> parts);
inline KernelKey key_of(std::initializer_list<std::string_view> parts) { return key_of(std::span(parts.begin(), parts.size())); }

/// 32 hexadecimal digits.
std::string text_of(const KernelKey& key);

}  // namespace hindcast::codegen::store
