#pragma once
// The guards of the process: the newest that lives gives the options of threads without a guard of their own.

#include "engine/options.h"

#include <cstdint>

namespace hindcast::engine {

/// Returns the guard's number. `options` have passed check().
std::uint64_t add_process_guard(const Options& options);
void remove_process_guard(std::uint64_t number);

}  // namespace hindcast::engine
