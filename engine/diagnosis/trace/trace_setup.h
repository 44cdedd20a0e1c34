#pragma once
// HINDCAST_TRACE: the folder that gets a page explaining the run.

namespace hindcast::engine {

/// Reads the variable the first time; later calls cost one atomic load. If the folder cannot be written to, logs a warning and continues
/// without a page.
void start_trace_from_environment();

}  // namespace hindcast::engine
