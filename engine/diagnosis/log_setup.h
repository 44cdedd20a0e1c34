#pragma once
// HINDCAST_LOGS and HINDCAST_LOGS_OUT. The grammar is that of TORCH_LOGS: names separated by commas, each alone (info), with + (debug) or
// with - (errors only). "all" takes the same signs and stands for every channel that is not named, regardless of order. Channels that
// are not named stay at warnings. An empty value, or 0, names none.

#include "base/log.h"
#include "hindcast/api.h"

#include <string>
#include <string_view>

namespace hindcast {

/// Sets what is logged, as HINDCAST_LOGS=`spec` HINDCAST_LOGS_OUT=`out` would: set_logs("+recompiles,perf"). `out` is a file to append to,
/// or empty for stderr. May be called again, from any thread; the environment is no longer read after that. Throws std::invalid_argument,
/// and changes nothing, for an unknown name or a file that cannot be opened.
HINDCAST_API void set_logs(const std::string& spec, const std::string& out = "");

namespace engine {

/// Parses `spec` into a threshold per channel. Throws std::invalid_argument with a text that starts with `subject`.
base::LogThresholds parse_log_spec(std::string_view spec, std::string_view subject = "HINDCAST_LOGS");

/// Reads the two variables and HINDCAST_TRACE. Once it has succeeded, a call costs two atomic loads. Throws as set_logs does; a later call
/// then tries again.
void configure_logs_from_environment();

/// Restores the state at process start: warnings to stderr, the environment not read yet.
void forget_log_configuration();

}  // namespace engine
}  // namespace hindcast
