#pragma once
// Saves and restores this thread's autocast state, for the CPU and the machine's accelerator.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <vector>

namespace hindcast::engine {

class AutocastState {
 public:
  static AutocastState now();

  /// Sets autocast to `state` while it lives.
  class Scope;

 private:
  struct DeviceState {
    c10::DeviceType device;
    bool is_enabled;
    c10::ScalarType dtype;
  };
  void set() const;

  std::vector<DeviceState> devices_;
  bool caches_ = true;
};

class AutocastState::Scope {
 public:
  explicit Scope(const AutocastState& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const AutocastState before_;
};

}  // namespace hindcast::engine
