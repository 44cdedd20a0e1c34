#pragma once
// Measures the CPU time of work that is confined to one thread. Wall-clock time would include other processes' use of the CPU, and the CPU
// time of several threads would include their waiting for each other.

#include <c10/util/FunctionRef.h>

namespace hindcast::codegen {

/// Runs `work`; LibTorch's parallel regions in it use no other thread.
void on_one_thread(c10::function_ref<void()> work);

/// CPU time of this thread in microseconds, from an arbitrary start.
double cpu_us();

}  // namespace hindcast::codegen
