#pragma once
// HINDCAST_LOGS and HINDCAST_LOGS_OUT. The grammar is that of TORCH_LOGS: names separated by commas, each alone (info),
// with + (debug) or with - (errors only); "all" takes the same signs and stands for every channel that is not named
// itself, in whatever order they are written. A channel that is not named stays at warnings. Empty, or 0: nothing is named.

#include "base/api.h"
#include "base/log.h"

#include <string>
#include <string_view>

namespace hindcast {

/// Says from now on what is logged, as HINDCAST_LOGS=`spec` HINDCAST_LOGS_OUT=`out` would: set_logs("+recompiles,perf").
/// `out` is a file to append to, empty for stderr. May be called again, from any thread; the environment is then not read
/// any more. Throws std::invalid_argument, and changes nothing, for an unknown name or a file that cannot be opened.
HINDCAST_API void set_logs(const std::string& spec, const std::string& out = "");

namespace engine {

/// What `spec` asks of each channel. `subject` starts the text of the std::invalid_argument.
base::LogThresholds parse_log_spec(std::string_view spec, std::string_view subject = "HINDCAST_LOGS");

/// Reads the two variables, the first time that it succeeds, and HINDCAST_TRACE; afterwards two atomic loads. Throws as set_logs does,
/// and a later call tries again.
void configure_logs_from_environment();

/// Back to how a process starts: warnings to stderr, the environment not read yet.
void forget_log_configuration();

}  // namespace engine
}  // namespace hindcast
