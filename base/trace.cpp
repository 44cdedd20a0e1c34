#include "base/trace.h"

#include "base/fork.h"
#include "base/format.h"
#include "base/log.h"
#include "base/thread_number.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <mutex>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace hindcast::base {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kRoomForLast = 4096;  // for the record that says that there are no more

// Counts how often each message occurred. A program that falls back in each step logs it in each step: occurrences 1, 2, 3, 4, 8, 16, ...
// become records.
class Repeats {
 public:
  /// Returns 0 if this occurrence is not recorded; otherwise how often the message has occurred.
  uint64_t count(Channel channel, std::string_view text) {
    constexpr size_t kMost = 1 << 14;
    if (counts_.size() > kMost) counts_.clear();
    const uint64_t times = ++counts_[std::hash<std::string_view>()(text) * 31 + static_cast<size_t>(channel)];
    return times <= 3 || (times & (times - 1)) == 0 ? times : 0;
  }

 private:
  std::unordered_map<size_t, uint64_t> counts_;
};

struct TraceFile {
  ForkSafe<std::mutex> mutex{ForkRank::Leaf};
  TraceTarget target;
  std::string path;
  int descriptor = -1;
  pid_t owner = 0;
  uint64_t written = 0;
  Clock::time_point started;
  Repeats repeats;
};

// Never destroyed: another thread may write while the process ends.
TraceFile& trace_file() {
  static constinit MadeOnce<TraceFile> file;
  return file.get();
}

std::string wall_clock() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// ---- The functions from here on are called under the file's lock.

// Writes all of `text`, or returns false with errno set.
bool write_all(TraceFile& file, std::string_view text) {
  file.written += text.size();
  while (!text.empty()) {
    const ssize_t count = ::write(file.descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string line_of(const TraceFile& file, std::string_view kind, JsonObject& head, const JsonObject* body) {
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - file.started).count();
  head.add("kind", kind).add("t", ms).add("thread", number_of_this_thread());
  std::string line = R"(<script type="application/x-hindcast">)" + head.str() + "</script>";
  if (body != nullptr) line += R"(<script type="application/x-hindcast-body">)" + body->str() + "</script>";
  return line + "\n";
}

void close_file(TraceFile& file) {
  if (file.descriptor >= 0) ::close(file.descriptor);
  file.descriptor = -1;
}

// Returns the error; empty on success.
std::error_code open_file(TraceFile& file) {
  const pid_t parent = file.owner;
  const std::string parents_path = std::exchange(file.path, {});
  close_file(file);  // in a child, this closes its copy of the parent's descriptor; the parent's stays open
  file.owner = ::getpid();
  file.started = Clock::now();
  file.written = 0;
  file.repeats = {};
  const std::string stem = file.target.folder + "/hindcast_" + std::to_string(file.owner);
  for (int number = 1; file.descriptor < 0; ++number) {
    file.path = stem + (number == 1 ? "" : "_" + std::to_string(number)) + ".html";
    file.descriptor = ::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file.descriptor < 0 && errno != EEXIST) return {errno, std::generic_category()};
  }
  JsonObject head;
  head.add("program", ::program_invocation_short_name).add("pid", file.owner).add("started", wall_clock());
  if (parent != 0) head.add("parent", parent).add("parent_file", std::filesystem::path(parents_path).filename().string());
  if (write_all(file, file.target.page) && write_all(file, line_of(file, "start", head, nullptr))) return {};
  return {errno, std::generic_category()};
}

// Returns why nothing more is written; empty on success.
std::string append(TraceFile& file, std::string_view kind, JsonObject& head, const JsonObject* body) {
  if (file.owner != ::getpid()) {
    if (const auto error = open_file(file)) return format("'{}' cannot be written to: {}", file.path, error.message());
  }
  if (file.descriptor < 0) return {};
  const std::string line = line_of(file, kind, head, body);
  if (file.written + line.size() + kRoomForLast <= file.target.most_bytes) {
    if (write_all(file, line)) return {};
    return format("'{}' cannot be written to: {}", file.path, std::generic_category().message(errno));
  }
  const std::string why = format("'{}' has the {} MiB that it may have", file.path, file.target.most_bytes >> 20);
  JsonObject last;
  last.add("text", "Nothing more is written: " + why + ".");
  write_all(file, line_of(file, "end", last, nullptr));
  return why;
}

// ---- end

void hear(Channel channel, Level level, std::string_view text) {
  if (channel == Channel::Perf) return;  // the page has times as numbers
  TraceFile& file = trace_file();
  uint64_t times = 0;
  {
    const std::lock_guard lock(file.mutex);
    times = file.repeats.count(channel, text);
  }
  if (times == 0) return;
  constexpr std::array kLevels = {"debug", "info", "warning", "error"};
  JsonObject head;
  head.add("channel", name(channel)).add("level", kLevels[static_cast<size_t>(level)]).add("text", text).add("times", times);
  write_record("log", std::move(head));
}

// Listens to messages. Listings and kernel sources have records of their own.
const LogListener& listener() {
  static constinit MadeOnce<const LogListener> listener;
  return listener.by([] {
    LogListener made{{}, hear};
    made.thresholds.fill(Level::Error);
    constexpr std::array kSentences = {Channel::CompiledAutograd, Channel::Recompiles, Channel::Hooks, Channel::Fallbacks,
                                       Channel::Fusion,           Channel::Aot,        Channel::Perf};
    for (const Channel channel : kSentences) made.thresholds[static_cast<size_t>(channel)] = Level::Info;
    return made;
  });
}

void switch_trace(bool on) {
  trace_is_on.store(on, std::memory_order_relaxed);
  set_log_listener(on ? &listener() : nullptr);
}

}  // namespace

constinit std::atomic<bool> trace_is_on = false;

void start_trace(TraceTarget target) {
  stop_trace();
  std::error_code error;
  target.folder = std::filesystem::absolute(target.folder, error);  // a child may be in another directory
  std::filesystem::create_directories(target.folder, error);        // opening the file reports any error
  TraceFile& file = trace_file();
  {
    const std::lock_guard lock(file.mutex);
    file.target = std::move(target);
    file.owner = 0;
    file.path.clear();
    error = open_file(file);
    if (error) {
      close_file(file);
      throw std::system_error(error, std::exchange(file.path, {}));
    }
  }
  switch_trace(true);
}

void stop_trace() {
  switch_trace(false);
  TraceFile& file = trace_file();
  const std::lock_guard lock(file.mutex);
  close_file(file);
  file.path.clear();
}

std::string trace_path() {
  TraceFile& file = trace_file();
  const std::lock_guard lock(file.mutex);
  return file.owner == ::getpid() ? file.path : "";
}

void write_record(std::string_view kind, JsonObject head, const JsonObject* body) {
  if (!tracing()) return;
  TraceFile& file = trace_file();
  std::string why_not;
  {
    const std::lock_guard lock(file.mutex);
    why_not = append(file, kind, head, body);
    if (!why_not.empty()) close_file(file);
  }
  if (why_not.empty()) return;
  switch_trace(false);
  HC_LOG(CompiledAutograd, Warning, "HINDCAST_TRACE ends: {}", why_not);
}

}  // namespace hindcast::base
