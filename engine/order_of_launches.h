#pragma once
// Launches of recordings, and what reads their memory, one behind the other.
//
// On the device, two launches of a recording must not overlap: the second one writes to memory that is copied from behind the first. On one
// stream they are in order anyway; where the stream changes, the new one waits for all launches on the former.

#include "base/fork.h"

#include <c10/core/Device.h>

#include <mutex>

namespace hindcast::engine {

/// Between its begin and its end a launch is given to the current stream of the device, with all that reads the recording's memory.
class OrderOfLaunches {
 public:
  explicit OrderOfLaunches(c10::Device device);
  ~OrderOfLaunches();
  OrderOfLaunches(const OrderOfLaunches&) = delete;
  OrderOfLaunches& operator=(const OrderOfLaunches&) = delete;

 private:
  const std::unique_lock<std::mutex> lock_;
  const c10::Device device_;
};

}  // namespace hindcast::engine
