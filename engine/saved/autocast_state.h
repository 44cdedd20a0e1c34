#pragma once
// Autocast of this thread, for the CPU and the machine's accelerator.

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <vector>

namespace hindcast::engine {

class AutocastState {
 public:
  static AutocastState now();

  /// While alive, autocast is as `state` says.
  class Scope;

 private:
  struct OfDevice {
    c10::DeviceType device;
    bool is_enabled;
    c10::ScalarType dtype;
  };
  void set() const;

  std::vector<OfDevice> devices_;
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
