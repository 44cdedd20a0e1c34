#pragma once
// Code that the loader takes away. A library that is loaded where another one was has the addresses of that: of its types, too.

#include <cstdint>

namespace hindcast::base {

/// How many libraries this process has unloaded so far, counted from 1. About 10 ns.
uint64_t unload_count();

/// Whether what lies there does so as long as the process: it is the program's, or this library's. Takes microseconds.
bool stays_loaded(const void* address);

}  // namespace hindcast::base
