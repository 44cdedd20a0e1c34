#pragma once

#include <benchmark/benchmark.h>
#include <c10/core/Device.h>

#include <vector>

#include "bench/gpu/workloads.h"
#include "hindcast/aot_options.h"

// How a row is measured on a card.
//
// A row has enough copies of its workload to exceed the card's caches. A round runs the forward of all copies, waits, and then runs their
// backwards one after the other without waiting, first those of one engine, then those of the other. Events of the stream surround each
// backward: once the host is ahead they measure the card's time only, and if the host is slower, its time. The host's time per call is
// measured as well. A row reports medians over all copies of all rounds.
//
// Launches, peaks of memory, and the time of ATen's calls are measured separately, in backwards that are not timed (asked.h).

namespace hindcast::bench::gpu {

/// Bytes per microsecond, read and written, of a copy that is larger than any cache.
double copy_bandwidth(c10::Device device);

/// Copies of the row's workload that are together larger than the card's caches.
std::vector<Workload> copies_of(const Row& row, c10::Device device);

/// A row of launch_bound_rows(): stock, kernels step by step, and CUDA graphs. Each step waits for the card, and its backward is measured
/// from the host's first call to the card's last work.
void measure_steps(benchmark::State& state, const Row& row, c10::Device device, int rounds);

void measure_row(benchmark::State& state, const Row& row, c10::Device device, int rounds, double bandwidth);

/// Forward and backward of a row that is a function of its leaves: eager, and compiled ahead of time. Returns stock's time over hindcast's;
/// 0 if nothing was timed.
double measure_whole(benchmark::State& state, const Row& row, c10::Device device, int rounds);
/// The options of measure_whole().
AotOptions whole_options(bool as_eager_draws);

}  // namespace hindcast::bench::gpu
