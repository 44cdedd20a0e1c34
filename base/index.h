#pragma once

#include <cstdint>

namespace hindcast::base {

/// In a table of indices: there is none.
inline constexpr uint32_t kNoIndex = 0xffffffffu;

}  // namespace hindcast::base
