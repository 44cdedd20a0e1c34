#pragma once

#include <benchmark/benchmark.h>
#include <c10/core/Device.h>

#include <vector>

#include "bench/gpu/workloads.h"
#include "hindcast/aot_options.h"

// How a row is measured on a card.
//
// A row has as many copies of its workload as are larger than the card's caches together. A round runs the forward of all copies, waits,
// and then runs their backwards one behind the other without waiting, first those of one engine, then those of the other. Events of the
// stream are around each backward: once the host is ahead they show the time of the card alone, and where the host is slower, its time.
// What the host takes for a call is measured beside that. A row reports medians over all copies of all rounds.
//
// Launches, peaks of memory, and what ATen's calls take are found apart from that, in backwards that are not timed (asked.h).

namespace hindcast::bench::gpu {

/// Bytes a microsecond, read and written, of a copy that is larger than any cache.
double copy_bandwidth(c10::Device device);

/// Copies of the row's workload that are together larger than the card's caches.
std::vector<Workload> copies_of(const Row& row, c10::Device device);

/// A row of launch_bound_rows(): stock, kernels step by step, and CUDA graphs. Each step waits for the card, and its backward is measured
/// from the host's first call to the card's last work.
void measure_steps(benchmark::State& state, const Row& row, c10::Device device, int rounds);

void measure_row(benchmark::State& state, const Row& row, c10::Device device, int rounds, double bandwidth);

/// Forward and backward of a row that is a function of its leaves: eager, and compiled ahead of time. Returns stock's time over hindcast's;
/// 0 where nothing was timed.
double measure_whole(benchmark::State& state, const Row& row, c10::Device device, int rounds);
/// With which measure_whole() compiles.
AotOptions whole_options(bool as_eager_draws);

}  // namespace hindcast::bench::gpu
