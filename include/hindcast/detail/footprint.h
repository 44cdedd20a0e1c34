#pragma once
// Memory footprint of containers, for caches that are bounded by bytes.

#include <cstddef>

namespace hindcast::base {

/// malloc's overhead per block, with rounding, on average.
inline constexpr size_t kBlockOverhead = 16;

/// Bytes of a vector's heap block, without what its elements own.
template <class Vector>
size_t footprint(const Vector& vector) {
  return vector.capacity() == 0 ? 0 : vector.capacity() * sizeof(*vector.data()) + kBlockOverhead;
}

/// Bytes of the heap block of a vector with inline storage for `Inline` elements.
template <size_t Inline, class Vector>
size_t footprint_beyond(const Vector& vector) {
  return vector.size() <= Inline ? 0 : footprint(vector);
}

}  // namespace hindcast::base
