#pragma once

#include <cstdint>

namespace hindcast::tests::fuzz {

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 0;
};

/// The first `count`, or those of HINDCAST_FUZZ_SEEDS="first:count"; of these, the part that this run does (tests/support/part.h). Throws
/// std::invalid_argument for any other text.
Seeds chosen_seeds(uint64_t count);

}  // namespace hindcast::tests::fuzz
