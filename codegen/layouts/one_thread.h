#pragma once
// The CPU time of a piece of work that one thread does alone. Time by the clock is also that of whoever else has the CPU, and CPU time of several
// threads also that which they wait for each other.

#include <c10/util/FunctionRef.h>

namespace hindcast::codegen {

/// Does `work`. LibTorch's parallel regions in it get no other thread.
void on_one_thread(c10::function_ref<void()> work);

/// CPU time of this thread, since some time.
double cpu_us();

}  // namespace hindcast::codegen
