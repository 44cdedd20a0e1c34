#pragma once
// Detects unloaded libraries. A library that is loaded later may get the same addresses, also those of its types.

#include <cstdint>

namespace hindcast::base {

/// How many libraries this process has unloaded so far, counted from 1. About 10 ns.
uint64_t unload_count();

/// Whether the code or data at `address` stays loaded as long as the process: it belongs to the program or to this library. Takes
/// microseconds.
bool stays_loaded(const void* address);

}  // namespace hindcast::base
