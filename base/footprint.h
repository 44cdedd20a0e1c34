#pragma once
// How many bytes a container holds, for what is bounded by bytes.

#include <cstddef>

namespace hindcast::base {

/// What malloc adds to a block, and what it rounds up, on average.
inline constexpr size_t kBlockOverhead = 16;

/// Of a vector's block, without what its elements hold themselves.
template <class Vector>
size_t footprint(const Vector& vector) {
  return vector.capacity() == 0 ? 0 : vector.capacity() * sizeof(*vector.data()) + kBlockOverhead;
}

/// Of a vector that keeps `Inline` elements in itself.
template <size_t Inline, class Vector>
size_t footprint_beyond(const Vector& vector) {
  return vector.size() <= Inline ? 0 : footprint(vector);
}

}  // namespace hindcast::base
