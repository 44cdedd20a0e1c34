#pragma once
// CPU time of a piece of work that one thread does alone. Time by the clock is also that of whoever else has the CPU, and CPU time of several threads
// also that which they wait for each other.

#include <c10/util/FunctionRef.h>

namespace hindcast::codegen {

/// LibTorch's parallel regions in `work` get no other thread.
double cpu_us_on_one_thread(c10::function_ref<void()> work);

}  // namespace hindcast::codegen
