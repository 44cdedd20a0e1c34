#pragma once
// Named log channels. A line reads "[hindcast/recompiles] text", also every line of a text of several lines, so that a
// grep finds all of it. Warnings and errors of every channel are written unless HINDCAST_LOGS says otherwise; asking
// whether a channel is on costs one relaxed load, and what is logged is computed only if it is. A listener may want more
// than the output does (base/trace.h).
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

/// Per channel the least level that is written to the output.
using LogThresholds = std::array<Level, kChannelCount>;
LogThresholds default_log_thresholds();  // Warning everywhere
LogThresholds log_thresholds();
void set_log_thresholds(const LogThresholds& thresholds);

extern std::array<std::atomic<Level>, kChannelCount> channel_thresholds;

/// The output wants it, or the listener does.
inline bool enabled(Channel channel, Level level) {
  return level >= channel_thresholds[static_cast<size_t>(channel)].load(std::memory_order_relaxed);
}
/// The output wants it. For texts that the listener has in another form.
bool is_for_output(Channel channel, Level level);

/// Gives `text` to those who want it.
void write_log(Channel channel, Level level, std::string_view text);
/// To the output alone, if it wants it.
void write_output(Channel channel, Level level, std::string_view text);

/// HC_LOG(Recompiles, Info, "{} variants", n): the arguments are evaluated only if the channel is on at that level.
#define HC_LOG(channel, level, ...)                                                                                 \
  do {                                                                                                              \
    if (::hindcast::base::enabled(::hindcast::base::Channel::channel, ::hindcast::base::Level::level)) [[unlikely]] \
      ::hindcast::base::write_log(::hindcast::base::Channel::channel, ::hindcast::base::Level::level,               \
                                  ::hindcast::base::format(__VA_ARGS__));                                           \
  } while (false)

/// Somebody who is told what is logged, beside the output. Other threads may be in `hear` at once.
struct LogListener {
  LogThresholds thresholds;
  void (*hear)(Channel channel, Level level, std::string_view text);
};
/// Null: nobody. It is never destroyed.
void set_log_listener(const LogListener* listener);

/// Where lines go. Safe to write to from many threads.
using LogOutput = std::shared_ptr<spdlog::logger>;
LogOutput stderr_log_output();
/// Appends, and writes every line through. Throws std::system_error when the file cannot be opened.
LogOutput file_log_output(const std::string& path);
/// A fork waits for no callback: a lock of its own has to be free in a child too (ForkSafe).
LogOutput callback_log_output(std::function<void(std::string_view lines)> callback);
/// Makes `output` the place for all channels and returns the former one.
LogOutput exchange_log_output(LogOutput output);

}  // namespace hindcast::base
