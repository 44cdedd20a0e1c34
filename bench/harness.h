#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/settings.h"
#include "bench/summary.h"
#include "bench/workload.h"
#include "hindcast/hindcast.h"

// How a row is measured.
//
// A *lane* is one workload under one engine. The lanes of a row take turns within each iteration of the benchmark, one block of backwards
// each, and the order is reversed every time, so that clock drift or other load affects all of them alike. A block's value is the median of
// its backwards; a row reports the median and the quartiles over its blocks. Only `loss.backward()` is timed, and what the workload runs
// after it: the forward, the zeroing of gradients and the end of the graph are not.

namespace hindcast::bench {

struct Lane {
  const Workload* work = nullptr;
  std::optional<Options> options = {};  // none: the stock engine, no guard

  // One sample per block, for one backward: microseconds, and for hindcast what stats() says.
  std::vector<double> us = {};
  std::vector<double> collect_us = {};
  std::vector<double> collect_ns_per_node = {};
  uint64_t backwards = 0;
  uint64_t hits = 0;

  Summary time() const { return summarize(us); }
  double hit_share() const { return backwards == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(backwards); }
};

/// Microseconds of one backward of a new graph, gradients cleared before.
double time_backward(const Lane& lane);

/// Appends one sample: the median of `backwards` backwards.
void run_block(Lane& lane, int backwards);

/// How many backwards fill a block of `settings.block_us`; at least one.
int backwards_per_block(const Settings& settings, double backward_us);

/// Lets every lane run one block, in an order that is reversed on odd rounds.
void run_round(const std::vector<Lane*>& lanes, int backwards, int64_t round);

/// Peak of tensor memory in one backward, minus `base_bytes`, what lived in the process before.
int64_t measure_peak(const Lane& lane, int64_t base_bytes);

/// Empty if hindcast gives the stock engine's gradients on a miss and on hits, each leaf its own; else a sentence for SkipWithError. Exact
/// equality is checked by the tests.
std::string differing_gradients(const Workload& work, const Options& options);

/// Whether two gradients are equal up to rounding.
bool agree(const at::Tensor& expected, const at::Tensor& seen);

/// The counters of a row that compares two lanes; ratio = stock over ours, higher is faster, and spread = its interquartile range over
/// itself.
void report_pair(benchmark::State& state, const Lane& stock, const Lane& ours);

/// The quotients of two lanes' samples, pair by pair. Their median is the row's ratio: a change of the machine's speed midway moves both
/// sides of a pair, but may move the two medians apart.
Summary paired_quotients(const std::vector<double>& over, const std::vector<double>& under);

/// Registers `name/tN`, once for each thread count, as a row of `pairs` iterations.
using Body = std::function<void(benchmark::State&)>;
void register_row(const Settings& settings, const std::string& name, int pairs, const Body& body);

/// The ordinary row: stock against hindcast on a hit, time, collect cost and peak memory.
void register_pair(const Settings& settings, const std::string& name, int pairs, const Build& build, Options options = {});
/// The same for a model, with the share of ATen's products and convolutions (report_floor()).
void register_model(const Settings& settings, const std::string& name, int pairs, const Build& build);

}  // namespace hindcast::bench
