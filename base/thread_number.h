#pragma once

#include <cstdint>

namespace hindcast::base {

/// Numbers threads from 0 in the order of their first call. Unlike the system's thread ids, a number is never reused.
uint32_t number_of_this_thread();

}  // namespace hindcast::base
