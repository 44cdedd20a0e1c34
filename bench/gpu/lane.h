#pragma once
// Workloads under one engine, on a card.

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/workload.h"
#include "hindcast/hindcast.h"

namespace hindcast::bench::gpu {

struct Lane {
  std::optional<Options> options = {};  // none: the stock engine
  std::vector<double> device_us = {}, host_us = {};

  void forget_times() {
    device_us.clear();
    host_us.clear();
  }
};

/// hindcast with kernels, step by step.
Options with_kernels();
/// The same, as CUDA graphs.
Options with_graphs();

template <class Call>
auto under_engine(const Lane& lane, const Call& call) {
  if (!lane.options) return call();
  const auto guard = enable(*lane.options);
  return call();
}

/// All forwards, then all backwards, one after the other without waiting.
void run_round(Lane& lane, const std::vector<Workload>& copies, c10::Device device);

/// Training steps. Each backward begins when the forward is done, and ends with the device's last work.
void run_steps(Lane& lane, const Workload& work, c10::Device device, int steps);

/// Empty if hindcast's gradients equal the stock engine's up to rounding, on a miss and on hits. Exact equality is checked by the tests.
std::string differing_gradients(const Lane& stock, const Lane& ours, const Workload& work);

/// The relative distance of the second tensor from the first, and its bound by rounding.
double difference(const at::Tensor& expected, const at::Tensor& seen);
double most_by_rounding(const at::Tensor& of_type);

}  // namespace hindcast::bench::gpu
