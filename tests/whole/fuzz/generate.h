#pragma once
// Programs from seeds: legal by construction, small, and as different from each other as the table of operators allows.

#include <cstdint>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// The same program for the same seed, on every machine.
Program generate(uint64_t seed);

}  // namespace hindcast::tests::fuzz
