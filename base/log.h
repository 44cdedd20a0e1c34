#pragma once
// Named log channels. Each line starts with "[hindcast/recompiles]", also every line of a multi-line text, so that a grep finds all of it.
// Warnings and errors of every channel are written unless HINDCAST_LOGS says otherwise; checking whether a channel is on costs one relaxed
// load, and messages are computed only if it is. A listener may receive more than the output (base/trace.h).
//
// spdlog writes the lines; only log.cpp includes it, for the reason that base/format.h gives.

#include "base/format.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace spdlog {
class logger;
}

namespace hindcast::base {

// enumerator, name in HINDCAST_LOGS
#define HC_LOG_CHANNELS(X)                              \
  X(CompiledAutograd, compiled_autograd)                \
  X(CompiledAutogradVerbose, compiled_autograd_verbose) \
  X(Graph, graph)                                       \
  X(GraphCode, graph_code)                              \
  X(Recompiles, recompiles)                             \
  X(Cache, cache)                                       \
  X(Hooks, hooks)                                       \
  X(Fallbacks, fallbacks)                               \
  X(Fusion, fusion)                                     \
  X(KernelCode, kernel_code)                            \
  X(CudaGraphs, cudagraphs)                             \
  X(Aot, aot)                                           \
  X(AotGraphs, aot_graphs)                              \
  X(Perf, perf)

enum class Channel : uint8_t {
#define HC_ENUMERATOR(enumerator, text) enumerator,
  HC_LOG_CHANNELS(HC_ENUMERATOR)
#undef HC_ENUMERATOR
};

inline constexpr std::array kChannelNames = {
#define HC_NAME(enumerator, text) std::string_view(#text),
    HC_LOG_CHANNELS(HC_NAME)
#undef HC_NAME
};
inline constexpr size_t kChannelCount = kChannelNames.size();

constexpr std::string_view name(Channel channel) { return kChannelNames[static_cast<size_t>(channel)]; }

enum class Level : uint8_t { Debug, Info, Warning, Error };

/// Per channel the lowest level that is written to the output.
using LogThresholds = std::array<Level, kChannelCount>;
LogThresholds default_log_thresholds();  // Warning everywhere
LogThresholds log_thresholds();
void set_log_thresholds(const LogThresholds& thresholds);

extern std::array<std::atomic<Level>, kChannelCount> channel_thresholds;

/// Whether the output or the listener wants this level.
inline bool enabled(Channel channel, Level level) {
  return level >= channel_thresholds[static_cast<size_t>(channel)].load(std::memory_order_relaxed);
}
/// Whether the output wants it. For texts that the listener gets in another form.
bool is_for_output(Channel channel, Level level);

/// Writes `text` to the output and to the listener, each if it wants this level.
void write_log(Channel channel, Level level, std::string_view text);
/// Writes to the output alone, if it wants this level.
void write_output(Channel channel, Level level, std::string_view text);

/// HC_LOG(Recompiles, Info, "{} variants", n): the arguments are evaluated only if the channel is on at that level.
#define HC_LOG(channel, level, ...)                                                                                 \
  do {                                                                                                              \
    if (::hindcast::base::enabled(::hindcast::base::Channel::channel, ::hindcast::base::Level::level)) [[unlikely]] \
      ::hindcast::base::write_log(::hindcast::base::Channel::channel, ::hindcast::base::Level::level,               \
                                  ::hindcast::base::format(__VA_ARGS__));                                           \
  } while (false)

/// Receives log texts besides the output. `hear` may be called from several threads at once.
struct LogListener {
  LogThresholds thresholds;
  void (*hear)(Channel channel, Level level, std::string_view text);
};
/// nullptr: no listener. The listener is never destroyed.
void set_log_listener(const LogListener* listener);

/// The destination of log lines. Thread-safe.
using LogOutput = std::shared_ptr<spdlog::logger>;
LogOutput stderr_log_output();
/// Appends, and flushes every line. Throws std::system_error if the file cannot be opened.
LogOutput file_log_output(const std::string& path);
/// fork() does not wait for callbacks: a lock that the callback uses must be free in a child too (ForkSafe).
LogOutput callback_log_output(std::function<void(std::string_view lines)> callback);
/// Makes `output` the destination of all channels and returns the former one.
LogOutput exchange_log_output(LogOutput output);

}  // namespace hindcast::base
