#pragma once
// Guards and their options by number, since an operator's schema cannot express a C++ object.

#include "hindcast/options.h"

#include <cstdint>
#include <string>

namespace hindcast::python {

/// The compiler with this name in compilers::. Empty: the default one.
Compiler compiler_named(const std::string& name);

/// Stores options for enable(), for the life of the process. An empty `compiler` means the default one.
int64_t keep_options(const std::string& compiler, const std::string& dynamic, int64_t limit, int64_t cache_size, int64_t cache_bytes,
                     int64_t cuda_graph_bytes, bool back_off, bool deterministic, bool async, bool verify, bool nan_guard, bool cuda_graphs,
                     bool require_cuda_graph, bool enabled, const std::string& collector);
/// hindcast::enable() on this thread.
int64_t enable(int64_t options);
/// hindcast::enable_process().
int64_t enable_process(int64_t options);
/// Ends a guard. A guard of enable() must be ended on the thread that made it.
void disable(int64_t guard);

}  // namespace hindcast::python
