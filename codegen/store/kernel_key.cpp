#include "codegen/store/kernel_key.h"

#include <xxhash.h>

#include <memory>
#include <new>

namespace hindcast::codegen::store {

KernelKey key_of(std::span<const std::string_view> parts) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  const auto add_number = [&](uint64_t number) { XXH3_128bits_update(state.get(), &number, sizeof(number)); };
  add_number(kStoreFormat);
  add_number(parts.size());
  for (const std::string_view part : parts) {
    add_number(part.size());
    XXH3_128bits_update(state.get(), part.data(), part.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {hash.low64, hash.high64};
}

std::string text_of(const KernelKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint64_t half : {key.high, key.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[(half >> shift) & 15];
  }
  return text;
}

}  // namespace hindcast::codegen::store
