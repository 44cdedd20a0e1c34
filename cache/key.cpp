#include "cache/key.h"

#include <xxhash.h>

#include <algorithm>

namespace hindcast::cache {

void KeyBytes::grow(size_t least) {
  constexpr size_t kFirstCapacity = 1024;
  const size_t capacity = std::max({least, 2 * capacity_, kFirstCapacity});
  auto bytes = std::make_unique_for_overwrite<uint8_t[]>(capacity);
  if (size_ != 0) std::memcpy(bytes.get(), bytes_.get(), size_);
  bytes_ = std::move(bytes);
  capacity_ = capacity;
}

KeyHash hash_of(std::span<const uint8_t> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

KeyView view_of(const KeyBytes& key) {
  const std::span<const uint8_t> bytes(key.data(), key.size());
  return {hash_of(bytes), bytes};
}

}  // namespace hindcast::cache
