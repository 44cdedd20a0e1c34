#pragma once
// HINDCAST_TRACE's file: an HTML page, and behind it the records of what happened, each on one line.
//
// A record is appended when it happens, by one write and without a buffer, so that a program that crashes leaves all that happened
// before. The page needs no last line: HTML may end anywhere, and a record that is cut off is left out. A record has a head, which the
// page reads when it is opened, and may have a body, which the page reads when somebody looks at it.
//
// What is logged becomes a record too (LogListener): a sentence is written once and for both.

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
  std::string folder;               // is made where it is missing
  std::string page;                 // what the file starts with
  uint64_t most_bytes = 256 << 20;  // the last record says that nothing more is written
};

/// Opens hindcast_<pid>.html, or hindcast_<pid>_2.html where that is taken: a file of another run is never written to. A forked child
/// opens one of its own with its first record. Throws std::system_error when it cannot.
void start_trace(TraceTarget target);
/// Closes the file. Nothing is written any more.
void stop_trace();
/// Of this process; empty: it has none.
std::string trace_path();

/// Appends a record. `head`, with `kind` and the time, is read at once, `body` when it is needed. Where the file cannot be written, a
/// warning says so, once, and tracing ends.
void write_record(std::string_view kind, JsonObject head, const JsonObject* body = nullptr);

}  // namespace hindcast::base
