#pragma once
// A crash or a hang loses the test's output: these report the seed on which it happened.

#include <cstdint>

namespace hindcast::tests::fuzz {

/// Sets the seed of the running program.
void set_current_seed(uint64_t seed);

/// Writes that seed to stderr when the process dies of a signal (`timeout` sends one to a program that hangs), then passes the signal to
/// the former handler (a sanitizer's).
void name_the_seed_on_crashes();

}  // namespace hindcast::tests::fuzz
