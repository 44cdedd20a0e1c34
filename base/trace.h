#pragma once
// The file of HINDCAST_TRACE: an HTML page followed by records of events, one per line.
//
// A record is appended when its event happens, by one unbuffered write, so that after a crash the file has all earlier events. The page
// needs no closing line: HTML may end anywhere, and an incomplete record is skipped. A record has a head, which the page parses on opening,
// and may have a body, which the page parses when the user looks at the record.
//
// Log messages become records too (LogListener), so each message is written once for both.

#include "base/json.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace hindcast::base {

extern std::atomic<bool> trace_is_on;

/// Whether records are wanted: one relaxed load.
inline bool tracing() { return trace_is_on.load(std::memory_order_relaxed); }

struct TraceTarget {
  std::string folder;               // created if missing
  std::string page;                 // beginning of the file
  uint64_t most_bytes = 256 << 20;  // the last record says that nothing more is written
};

/// Opens hindcast_<pid>.html, or hindcast_<pid>_2.html if that exists: a file of another run is never written to. A forked child opens its
/// own file with its first record. Throws std::system_error if the file cannot be opened.
void start_trace(TraceTarget target);
/// Closes the file. Nothing is written after this.
void stop_trace();
/// The path of this process's file; empty if it has none.
std::string trace_path();

/// Appends a record. The page parses `head`, with `kind` and the time, on opening, and `body` on demand. If the file cannot be written, one
/// warning is logged and tracing ends.
void write_record(std::string_view kind, JsonObject head, const JsonObject* body = nullptr);

}  // namespace hindcast::base
