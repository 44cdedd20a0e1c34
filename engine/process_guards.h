#pragma once
// Process-wide guards: the newest one alive sets the options of threads that have no guard of their own.

#include "hindcast/options.h"

#include <cstdint>

namespace hindcast::engine {

/// Returns the guard's number. `options` must have passed check().
std::uint64_t add_process_guard(const Options& options);
void remove_process_guard(std::uint64_t number);

}  // namespace hindcast::engine
