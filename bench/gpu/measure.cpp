#include "bench/gpu/measure.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "bench/gpu/asked.h"
#include "bench/gpu/device_memory.h"
#include "bench/gpu/lane.h"
#include "bench/gpu/moment.h"
#include "bench/summary.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;

constexpr double kLargerThanCaches = 256 << 20;
constexpr int kMostCopies = 64;

/// The costs of both lanes, stock first: whatever hindcast keeps from its first backward on counts only against it. A difference of their
/// gradients is an error of the row; then nothing is returned.
std::optional<std::pair<Asked, Asked>> asked_by_both(benchmark::State& state, const Lane& stock, const Lane& ours, const Workload& work,
                                                     c10::Device device) {
  const int64_t base = live_bytes(device);
  Asked of_stock = asked_by(stock, work, device, base);
  if (const std::string error = differing_gradients(stock, ours, work); !error.empty()) {
    state.SkipWithError(error.c_str());
    return {};
  }
  work.clear_grads();
  return std::pair(std::move(of_stock), asked_by(ours, work, device, base));
}

}  // namespace

double copy_bandwidth(c10::Device device) {
  constexpr int64_t kFloats = int64_t{64} << 20;
  const Tensor from = at::ones({device.is_cuda() ? 4 * kFloats : kFloats / 8}, device), to = at::empty_like(from);
  std::vector<double> us;
  for (int i = 0; i < 12; ++i) {
    Moment begin(device), end(device);
    begin.record(device);
    to.copy_(from);
    end.record(device);
    wait_for(device);
    if (i >= 2) us.push_back(begin.microseconds_until(end));
  }
  return 2 * static_cast<double>(from.nbytes()) / summarize(us).median;
}

std::vector<Workload> copies_of(const Row& row, c10::Device device) {
  std::vector<Workload> copies = {row.build({device})};
  const int count = std::clamp(static_cast<int>(std::ceil(kLargerThanCaches / copies.front().floor_bytes)), 4, kMostCopies);
  while (static_cast<int>(copies.size()) < count) copies.push_back(row.build({device}));
  return copies;
}

void measure_steps(benchmark::State& state, const Row& row, c10::Device device, int rounds) {
  constexpr int kSteps = 20;  // of each lane in a round
  reset();
  at::manual_seed(1);
  const Workload work = row.build({device});
  Lane stock, kernels{with_kernels()}, graphs{with_graphs()};
  const auto asked = asked_by_both(state, stock, kernels, work, device);
  if (!asked) return;
  if (const std::string error = differing_gradients(stock, graphs, work); !error.empty()) {
    state.SkipWithError(error.c_str());
    return;
  }
  for (Lane* lane : {&stock, &kernels, &graphs}) {  // warm up
    run_steps(*lane, work, device, kSteps);
    lane->forget_times();
  }
  const Stats before = stats();
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      for (Lane* lane : {&stock, &kernels, &graphs}) run_steps(*lane, work, device, kSteps);
    }
    state.SetIterationTime(1e-6 * summarize(graphs.device_us).median);
  }
  const Stats after = stats();
  auto& counters = state.counters;
  counters["stock_us"] = summarize(stock.device_us).median;
  counters["stock_iqr_us"] = summarize(stock.device_us).iqr();
  counters["hindcast_us"] = summarize(kernels.device_us).median;
  counters["hindcast_iqr_us"] = summarize(kernels.device_us).iqr();
  counters["graphs_us"] = summarize(graphs.device_us).median;
  counters["graphs_iqr_us"] = summarize(graphs.device_us).iqr();
  counters["stock_host_us"] = summarize(stock.host_us).median;
  counters["hindcast_host_us"] = summarize(kernels.host_us).median;
  counters["graphs_host_us"] = summarize(graphs.host_us).median;
  counters["ratio"] = summarize(stock.device_us).median / summarize(kernels.device_us).median;
  counters["graphs_ratio"] = summarize(stock.device_us).median / summarize(graphs.device_us).median;
  counters["graph_bytes"] = static_cast<double>(after.cuda_graph_bytes);
  counters["graph_share"] = static_cast<double>(after.cuda_graph_launches - before.cuda_graph_launches) / (kSteps * rounds);
  counters["ns_a_node"] = ns_a_node(before, after);
  report_asked(state, asked->first, asked->second, summarize(kernels.host_us).median);
}

void measure_row(benchmark::State& state, const Row& row, c10::Device device, int rounds, double bandwidth) {
  reset();
  at::manual_seed(1);
  const std::vector<Workload> copies = copies_of(row, device);
  Lane stock, ours{with_kernels()};
  const auto asked = asked_by_both(state, stock, ours, copies.front(), device);
  if (!asked) return;
  for (Lane* lane : {&stock, &ours}) {  // warm up
    run_round(*lane, copies, device);
    lane->forget_times();
  }
  const Stats before = stats();
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      run_round(round % 2 == 0 ? stock : ours, copies, device);
      run_round(round % 2 == 0 ? ours : stock, copies, device);
    }
    state.SetIterationTime(1e-6 * summarize(ours.device_us).median);
  }
  const Stats after = stats();
  auto& counters = state.counters;
  const double us = summarize(ours.device_us).median, floor_us = copies.front().floor_bytes / bandwidth;
  counters["stock_us"] = summarize(stock.device_us).median;
  counters["stock_iqr_us"] = summarize(stock.device_us).iqr();
  counters["hindcast_us"] = us;
  counters["hindcast_iqr_us"] = summarize(ours.device_us).iqr();
  counters["stock_host_us"] = summarize(stock.host_us).median;
  counters["hindcast_host_us"] = summarize(ours.host_us).median;
  counters["ratio"] = summarize(stock.device_us).median / us;
  counters["floor_us"] = floor_us;
  counters["floor_share"] = floor_us / us;
  counters["hit_share"] = static_cast<double>(after.hits - before.hits) / (static_cast<double>(copies.size()) * rounds);
  counters["ns_a_node"] = ns_a_node(before, after);
  report_asked(state, asked->first, asked->second, summarize(ours.host_us).median);
}

}  // namespace hindcast::bench::gpu
