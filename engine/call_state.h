#pragma once
// Global and thread-local state that a captured graph depends on, and state that only the stock engine handles.

#include "cache/key.h"
#include "engine/counters/fallback.h"
#include "hindcast/options.h"

#include <c10/core/SafePyObject.h>
#include <c10/core/TensorImpl.h>

#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Why this thread's state forces the call onto the stock engine; nullopt if it does not.
std::optional<FallbackReason> fallback_for_thread_state();

/// True if this thread has no functorch level, dispatch mode or other state that a replay would ignore. Inference mode is allowed.
bool has_usual_dispatch_state();

/// True for a tensor whose dimensions have names.
bool is_named(const c10::TensorImpl& tensor);

/// True if this thread's guard (Options::deterministic) or LibTorch asks for bitwise equal results, whatever was compiled before.
bool asks_for_equal_bits();

/// Appends autocast, deterministic and precision switches, backend switches and default dtype to `key`.
void append_call_state(cache::KeyBytes& key);

/// Settings that an accelerator's ops read, as bits: TF32, cuDNN, reduced precision, fused attention, autocast.
uint64_t accelerator_state(c10::DeviceType accelerator);

/// All LibTorch settings that a function may leave changed for its caller: those above, grad mode, the number of threads, anomaly mode,
/// Python's modes.
class ThreadSettings {
 public:
  static ThreadSettings now();
  bool operator==(const ThreadSettings& other) const;

 private:
  explicit ThreadSettings(const cache::KeyBytes& values) : values_(cache::view_of(values)) {}

  cache::Key values_;
  std::vector<std::shared_ptr<c10::SafePyObject>> modes_;  // kept alive, so that a new mode cannot reuse the address of one that ended
};

/// Why a function that leaves other ThreadSettings behind is no program.
constexpr const char* kChangesASetting =
    "it changes a setting of LibTorch's for its caller, such as grad mode, autocast or the default dtype";

/// Appends the options that affect a capture. `bitwise`: replays must round exactly as the capture does.
void append_options(cache::KeyBytes& key, const Options& options, bool bitwise);

}  // namespace hindcast::engine
