#pragma once
// What a backward asks of the device and of the host, beside time on the card.

#include <benchmark/benchmark.h>
#include <c10/core/Device.h>

#include <cstdint>

#include "bench/gpu/aten_calls.h"
#include "bench/gpu/lane.h"

namespace hindcast::bench::gpu {

struct Asked {
  CallsByName calls;  // of ATen's operators
  int64_t kernels = 0;
  int64_t nodes = 0;  // that were looked up
  int64_t peak_bytes = 0;

  int64_t count() const;  // of the calls
  double us() const;
  /// At least: a call of ATen's may be several.
  int64_t launches() const { return kernels + count(); }
};

/// Of one backward of a lane that is warm. `base_bytes`: what lived on the device before; the peak is beyond it.
Asked asked_by(const Lane& lane, const Workload& work, c10::Device device, int64_t base_bytes);

/// What the host may take for a hit: 0.5 us a node, 4 us a kernel, and for each call of ATen's what the stock engine takes for such a
/// call. An operator that stock does not call is taken at what it took in the hit.
double host_bound_us(const Asked& stock, const Asked& ours);

/// As counters: launches, peaks, and the host's time, which was measured, beside its bound. Times of ATen's calls are in `library_us`.
void report_asked(benchmark::State& state, const Asked& stock, const Asked& ours, double host_us);

/// Collecting and looking up of the hits in between, for each node.
double ns_a_node(const Stats& before, const Stats& after);

}  // namespace hindcast::bench::gpu
