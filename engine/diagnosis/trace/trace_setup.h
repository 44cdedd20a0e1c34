#pragma once
// HINDCAST_TRACE: a folder for a page that explains the run.

namespace hindcast::engine {

/// Reads the variable, the first time; afterwards one atomic load. A folder that cannot be written to is a warning, and the program goes
/// on without a page.
void start_trace_from_environment();

}  // namespace hindcast::engine
