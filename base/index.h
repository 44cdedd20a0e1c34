#pragma once

#include <cstdint>

namespace hindcast::base {

/// Marks an empty entry in a table of indices.
inline constexpr uint32_t kNoIndex = 0xffffffffu;

}  // namespace hindcast::base
