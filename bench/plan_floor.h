#pragma once

#include <benchmark/benchmark.h>

#include <functional>

namespace hindcast::bench {

/// How close a model's step is to a lower bound: the matrix products and convolutions that ATen computes with and without hindcast, timed
/// where they run, and for everything else the bytes read and written over the bandwidth of a copy. Data in a cache is faster than that:
/// the share may be above 1.
///
/// `step` runs captured graphs or compiled functions, all of whose steps count; `us`: the row's measured time of it. `more_bytes`: read and
/// written in `step` besides, as by an optimizer.
void report_floor(benchmark::State& state, const std::function<void()>& step, double us, double more_bytes = 0);

}  // namespace hindcast::bench
