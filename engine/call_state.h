#pragma once
// Global and thread-local state that a captured graph depends on, and state under which only the stock engine is right.

#include "cache/key.h"
#include "engine/counters/fallback.h"
#include "engine/options.h"

#include <c10/core/SafePyObject.h>

#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Why this call must run on the stock engine, judged by the thread's state alone.
std::optional<FallbackReason> fallback_for_thread_state();

/// No functorch level, dispatch mode or other state of this thread that a replay would not see. Inference mode is usual.
bool has_usual_dispatch_state();

/// This thread's guard or LibTorch asks for equal bits, whatever was compiled before: Options::deterministic.
bool asks_for_equal_bits();

/// Appends autocast, deterministic and precision switches, backend switches and default dtype to `key`.
void append_call_state(cache::KeyBytes& key);

/// The same of an accelerator, which the ops there ask for: TF32, cuDNN, reduced precision, fused attention, autocast.
uint64_t accelerator_state(c10::DeviceType accelerator);

/// All settings of LibTorch's that a function may change and leave changed for its caller: the above, grad mode, the number of threads, anomaly
/// mode, Python's modes.
class ThreadSettings {
 public:
  static ThreadSettings now();
  bool operator==(const ThreadSettings& other) const;

 private:
  explicit ThreadSettings(const cache::KeyBytes& values) : values_(cache::view_of(values)) {}

  cache::Key values_;
  std::vector<std::shared_ptr<c10::SafePyObject>> modes_;  // kept: a mode that ends and one that begins have two addresses
};

/// Of a function that leaves another ThreadSettings behind.
constexpr const char* kChangesASetting =
    "it changes a setting of LibTorch's for its caller, such as grad mode, autocast or the default dtype";

/// Appends the options that a capture is made by. `to_the_bit`: nothing may round otherwise than it does at capture.
void append_options(cache::KeyBytes& key, const Options& options, bool to_the_bit);

}  // namespace hindcast::engine
