#include "base/log.h"

#include "base/fork.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

namespace hindcast::base {
namespace {

// Lines arrive complete: the sink adds only the end of line.
LogOutput output_to(std::shared_ptr<spdlog::sinks::sink> sink) {
  sink->set_pattern("%v");
  auto logger = std::make_shared<spdlog::logger>("hindcast", std::move(sink));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

class CallbackSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit CallbackSink(std::function<void(std::string_view)> callback) : callback_(std::move(callback)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    callback_({formatted.data(), formatted.size()});
  }
  void flush_() override {}

  std::function<void(std::string_view)> callback_;
};

struct CurrentOutput {
  ForkSafe<std::mutex> mutex{ForkRank::Leaf};
  LogOutput output = stderr_log_output();
};

// Serialises writing of lines. The user's callback runs meanwhile, so a fork does not wait: the child gets a new lock.
class Turn final : private ForkLock {
 public:
  Turn() : ForkLock(ForkRank::Leaf) { enroll(); }

  void write(spdlog::logger& output, std::string_view lines) {
    if (mine) {  // called from within the callback
      std::fprintf(stderr, "%.*s\n", static_cast<int>(lines.size()), lines.data());
      return;
    }
    const std::lock_guard lock(mutex_);
    const Mine here;
    // A full disk must not abort a backward: the logger catches what its sink throws and reports it on stderr, once a second.
    output.log(spdlog::level::info, spdlog::string_view_t(lines.data(), lines.size()));
  }

 private:
  void before_fork() override {}
  void after_fork_in_parent() override {}
  void after_fork_in_child() override {
    if (!mine) new (&mutex_) std::mutex;
  }

  static thread_local bool mine;
  struct Mine {
    Mine() { mine = true; }
    ~Mine() { mine = false; }
  };

  std::mutex mutex_;
};
thread_local bool Turn::mine = false;

// Never destroyed: another thread, or a static object's destructor, may log while the process ends.
CurrentOutput& current_output() {
  static constinit MadeOnce<CurrentOutput> current;
  return current.get();
}
Turn& turn() {
  static constinit MadeOnce<Turn> turn;
  return turn.get();
}

std::string_view mark(Level level) {
  switch (level) {
    case Level::Debug:
    case Level::Info:
      return "";
    case Level::Warning:
      return "warning: ";
    case Level::Error:
      return "error: ";
  }
  return "";
}

std::string with_prefix_on_each_line(Channel channel, Level level, std::string_view text) {
  std::string prefix = "[hindcast/";
  prefix += name(channel);
  prefix += "] ";
  std::string lines = prefix;
  lines += mark(level);
  if (text.ends_with('\n')) text.remove_suffix(1);
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines += prefix;
  }
  return lines;
}

template <size_t... I>
constexpr std::array<std::atomic<Level>, kChannelCount> all_at(Level level, std::index_sequence<I...>) {
  return {((void)I, level)...};
}

constinit std::array<std::atomic<Level>, kChannelCount> output_thresholds =
    all_at(Level::Warning, std::make_index_sequence<kChannelCount>());
constinit std::atomic<const LogListener*> log_listener = nullptr;

// Taken to change thresholds; reading them takes no lock.
ForkSafe<std::mutex>& thresholds_mutex() {
  static constinit MadeOnce<ForkSafe<std::mutex>> mutex;
  return mutex.get(ForkRank::Leaf);
}

// Requires the mutex.
void combine_thresholds() {
  const LogListener* const listener = log_listener.load(std::memory_order_relaxed);
  for (size_t i = 0; i < kChannelCount; ++i) {
    const Level output = output_thresholds[i].load(std::memory_order_relaxed);
    channel_thresholds[i].store(listener == nullptr ? output : std::min(output, listener->thresholds[i]), std::memory_order_relaxed);
  }
}

}  // namespace

constinit std::array<std::atomic<Level>, kChannelCount> channel_thresholds =
    all_at(Level::Warning, std::make_index_sequence<kChannelCount>());

LogThresholds default_log_thresholds() {
  LogThresholds thresholds;
  thresholds.fill(Level::Warning);
  return thresholds;
}

LogThresholds log_thresholds() {
  LogThresholds thresholds;
  for (size_t i = 0; i < kChannelCount; ++i) thresholds[i] = output_thresholds[i].load(std::memory_order_relaxed);
  return thresholds;
}

void set_log_thresholds(const LogThresholds& thresholds) {
  const std::lock_guard lock(thresholds_mutex());
  for (size_t i = 0; i < kChannelCount; ++i) output_thresholds[i].store(thresholds[i], std::memory_order_relaxed);
  combine_thresholds();
}

void set_log_listener(const LogListener* listener) {
  const std::lock_guard lock(thresholds_mutex());
  log_listener.store(listener, std::memory_order_release);
  combine_thresholds();
}

bool is_for_output(Channel channel, Level level) {
  return level >= output_thresholds[static_cast<size_t>(channel)].load(std::memory_order_relaxed);
}

void write_log(Channel channel, Level level, std::string_view text) {
  const LogListener* const listener = log_listener.load(std::memory_order_acquire);
  if (listener != nullptr && level >= listener->thresholds[static_cast<size_t>(channel)]) listener->hear(channel, level, text);
  write_output(channel, level, text);
}

void write_output(Channel channel, Level level, std::string_view text) {
  if (!is_for_output(channel, level)) return;
  CurrentOutput& current = current_output();
  LogOutput output;
  {
    const std::lock_guard lock(current.mutex);
    output = current.output;
  }
  turn().write(*output, with_prefix_on_each_line(channel, level, text));
}

LogOutput stderr_log_output() { return output_to(std::make_shared<spdlog::sinks::stderr_sink_st>()); }

LogOutput file_log_output(const std::string& path) {
  // spdlog would create missing folders and lose the error code, so open the file once before.
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) throw std::system_error(errno, std::generic_category(), path);
  std::fclose(file);
  return output_to(std::make_shared<spdlog::sinks::basic_file_sink_st>(path));
}

LogOutput callback_log_output(std::function<void(std::string_view lines)> callback) {
  return output_to(std::make_shared<CallbackSink>(std::move(callback)));
}

LogOutput exchange_log_output(LogOutput output) {
  CurrentOutput& current = current_output();
  const std::lock_guard lock(current.mutex);
  std::swap(current.output, output);
  return output;
}

}  // namespace hindcast::base
