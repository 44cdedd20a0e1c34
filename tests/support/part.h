#pragma once

#include <cstddef>

namespace hindcast::tests {

/// The part of a long sweep that this run does: every `count`-th case.
struct Part {
  size_t index = 0, count = 1;
  bool has(size_t i) const { return i % count == index; }
};

/// From HINDCAST_TEST_PART="index:count"; without it, all. Throws std::invalid_argument for any other text.
Part part_of_run();

}  // namespace hindcast::tests
