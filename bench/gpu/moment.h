#pragma once

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <optional>

namespace hindcast::bench::gpu {

using Clock = std::chrono::steady_clock;

inline double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Waits for the device's current stream.
inline void wait_for(c10::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

/// A moment on the stream; if the device is the CPU, to try this program, on the host.
class Moment {
 public:
  explicit Moment(c10::Device device) {
    if (device.is_cuda()) event_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  }
  void record(c10::Device device) {
    if (event_) event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    time_ = Clock::now();
  }
  double microseconds_until(const Moment& later) const {
    if (event_) return 1e3 * event_->elapsedTime(*later.event_);
    return std::chrono::duration<double, std::micro>(later.time_ - time_).count();
  }

 private:
  std::optional<c10::Event> event_;
  Clock::time_point time_;
};

}  // namespace hindcast::bench::gpu
