#pragma once
// A crash or a hang takes the test's output with it: these say on which seed it happened.

#include <cstdint>

namespace hindcast::tests::fuzz {

/// Names the program that runs now.
void set_current_seed(uint64_t seed);

/// Writes that name to stderr when the process dies of a signal (`timeout` sends one to a program that hangs), then lets
/// the former handler (a sanitizer's) have it.
void name_the_seed_on_crashes();

}  // namespace hindcast::tests::fuzz
