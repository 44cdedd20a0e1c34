// Forward and backward together, of functions compiled ahead of time. The backward runs under a guard, as for a user of both.

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>

#include "bench/gpu/device_memory.h"
#include "bench/gpu/lane.h"
#include "bench/gpu/measure.h"
#include "bench/gpu/moment.h"
#include "bench/summary.h"
#include "hindcast/aot_function.h"

namespace hindcast::bench::gpu {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Call = std::function<Tensor(const Tensors& leaves)>;

struct WholeLane {
  Call call;
  std::optional<Options> options = {};  // of hindcast; without, the engine is stock's
  std::vector<double> device_us = {}, host_us = {};
};

void run_round(WholeLane& lane, const std::vector<Workload>& copies, c10::Device device) {
  std::optional<Guard> guard;
  if (lane.options) guard.emplace(enable(*lane.options));
  std::vector<Moment> begins, ends;
  for (const Workload& work : copies) {
    work.clear_grads();
    begins.emplace_back(device);
    ends.emplace_back(device);
  }
  wait_for(device);
  for (size_t i = 0; i < copies.size(); ++i) {
    begins[i].record(device);
    const Clock::time_point start = Clock::now();
    lane.call(copies[i].leaves).backward(copies[i].incoming);
    lane.host_us.push_back(microseconds_since(start));
    ends[i].record(device);
  }
  wait_for(device);
  for (size_t i = 0; i < copies.size(); ++i) lane.device_us.push_back(begins[i].microseconds_until(ends[i]));
}

/// The result and the gradients.
Tensors outcome_of(const Call& call, const Workload& work) {
  at::manual_seed(7);
  work.clear_grads();
  const Tensor result = call(work.leaves);
  result.backward(work.incoming);
  Tensors outcome = {result.detach()};
  for (const Tensor& leaf : work.leaves) outcome.push_back(leaf.grad());
  return outcome;
}

/// For a function that draws as eager does; if kernels draw, there is nothing to compare with.
std::string differs(const Row& row, const Workload& work) {
  const Tensors expected = outcome_of(row.function, work);
  const Call compiled = AotFunction<Call>(row.function, whole_options(/*as_eager_draws=*/true));
  for (int call = 1; call <= 3; ++call) {
    const Tensors seen = outcome_of(compiled, work);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = difference(expected[i], seen[i]);
      if (!(error <= most_by_rounding(expected[i])))
        return (i == 0 ? "the result" : "gradient " + std::to_string(i - 1)) + " of call " + std::to_string(call) + " is wrong by " +
               std::to_string(error) + ": nothing was timed; run the tests";
    }
  }
  return {};
}

double peak_mib(const WholeLane& lane, const Workload& work, c10::Device device, int64_t base_bytes) {
  std::optional<Guard> guard;
  if (lane.options) guard.emplace(enable(*lane.options));
  work.clear_grads();
  restart_peak(device);
  lane.call(work.leaves).backward(work.incoming);
  const int64_t peak = peak_bytes(device) - base_bytes;
  work.clear_grads();
  return static_cast<double>(peak) / (1 << 20);
}

}  // namespace

AotOptions whole_options(bool as_eager_draws) {
  AotOptions options;
  options.partition = partition::min_cut;
  options.async = false;
  options.fallback_random = as_eager_draws;
  return options;
}

double measure_whole(benchmark::State& state, const Row& row, c10::Device device, int rounds) {
  reset();
  at::manual_seed(1);
  const std::vector<Workload> copies = copies_of(row, device);
  const Workload& first = copies.front();
  if (const std::string error = differs(row, first); !error.empty()) {
    state.SkipWithError(error.c_str());
    return 0;
  }
  reset();
  const AotFunction<Call> compiled(row.function, whole_options(/*as_eager_draws=*/false));
  WholeLane eager{row.function}, ours{compiled, with_kernels()};
  first.clear_grads();
  const int64_t base = live_bytes(device);
  const double stock_peak = peak_mib(eager, first, device, base);
  for (WholeLane* lane : {&eager, &ours}) {  // traced, and warm
    run_round(*lane, copies, device);
    *lane = {lane->call, lane->options};
  }
  for (const Workload& work : copies) work.clear_grads();
  const double our_peak = peak_mib(ours, first, device, base);
  const AotStats before = compiled.stats();
  for (auto _ : state) {
    for (int round = 0; round < rounds; ++round) {
      run_round(round % 2 == 0 ? eager : ours, copies, device);
      run_round(round % 2 == 0 ? ours : eager, copies, device);
    }
    state.SetIterationTime(1e-6 * summarize(ours.device_us).median);
  }
  const AotStats after = compiled.stats();
  auto& counters = state.counters;
  const double ratio = summarize(eager.device_us).median / summarize(ours.device_us).median;
  counters["stock_us"] = summarize(eager.device_us).median;
  counters["stock_iqr_us"] = summarize(eager.device_us).iqr();
  counters["hindcast_us"] = summarize(ours.device_us).median;
  counters["hindcast_iqr_us"] = summarize(ours.device_us).iqr();
  counters["stock_host_us"] = summarize(eager.host_us).median;
  counters["hindcast_host_us"] = summarize(ours.host_us).median;
  counters["ratio"] = ratio;
  counters["hit_share"] = static_cast<double>(after.hits - before.hits) / static_cast<double>(after.calls - before.calls);
  if (stock_peak > 0) {
    counters["stock_peak_mib"] = stock_peak;
    counters["peak_mib"] = our_peak;
  }
  return ratio;
}

}  // namespace hindcast::bench::gpu
