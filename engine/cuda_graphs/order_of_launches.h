#pragma once
// Serialises launches of CUDA graphs with the copies that read their memory.
//
// Two launches of a CUDA graph must not overlap on the device: the second overwrites memory that is copied out after the first. On one
// stream they are in order anyway; if the stream changes, the new stream waits for all launches on the previous one.

#include "base/fork.h"

#include <c10/core/Device.h>

#include <mutex>

namespace hindcast::engine {

/// While one lives, the caller enqueues a launch on the device's current stream, with everything that reads the CUDA graph's memory.
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
