#pragma once

#include <cstdint>

namespace hindcast::base {

/// From 0, in the order in which threads first ask. The system gives the id of a thread that has ended to another one; this is nobody else's.
uint32_t number_of_this_thread();

}  // namespace hindcast::base
