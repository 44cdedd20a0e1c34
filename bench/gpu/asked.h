#pragma once
// What a backward costs the device and the host, besides time on the card.

#include <benchmark/benchmark.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "bench/gpu/aten_calls.h"
#include "bench/gpu/lane.h"

namespace hindcast::bench::gpu {

struct Asked {
  CallsByName calls;  // of ATen's operators
  int64_t kernels = 0;
  int64_t nodes = 0;  // looked up
  int64_t peak_bytes = 0;

  int64_t count() const;  // of the calls
  double us() const;
  /// A lower bound: one call of ATen's may launch several.
  int64_t launches() const { return kernels + count(); }
};

/// Measures one backward of a warm lane. `base_bytes`: what lived on the device before; the peak is relative to it.
Asked asked_by(const Lane& lane, const Workload& work, c10::Device device, int64_t base_bytes);

/// The host's time allowed for a hit: 0.5 us per node, 4 us per kernel, and for each call of ATen's the stock engine's time for such a
/// call. An operator that stock does not call counts with its time in the hit.
double host_bound_us(const Asked& stock, const Asked& ours);

/// Sets counters: launches, peaks, and the host's measured time, next to its bound. Times of ATen's calls are in `library_us`.
void report_asked(benchmark::State& state, const Asked& stock, const Asked& ours, double host_us);

/// The time of collecting and looking up the hits in between, per node.
double ns_a_node(const Stats& before, const Stats& after);

}  // namespace hindcast::bench::gpu
