#include "bench/harness.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>
#include <utility>

#include "bench/byte_floor.h"
#include "bench/clock.h"
#include "bench/memory.h"
#include "bench/plan_floor.h"

namespace hindcast::bench {
namespace {

// In addition to the three backwards of the gradients' check, which include the miss.
constexpr int kWarmUp = 2;

template <class Call>
auto under_engine(const Lane& lane, const Call& call) {
  if (!lane.options) return call();
  const auto guard = enable(*lane.options);
  return call();
}

double timed(const Workload& work) {
  work.clear_grads();
  const at::Tensor loss = work.forward();
  const double start = now_us();
  loss.backward(work.incoming);
  if (work.after_backward) work.after_backward();
  return now_us() - start;
}

std::vector<at::Tensor> gradients(const Lane& lane) {
  at::manual_seed(7);  // dropout must draw the same masks in both engines
  // Without after_backward: an optimizer's step would change the function that is compared.
  under_engine(lane, [&] {
    lane.work->clear_grads();
    lane.work->forward().backward(lane.work->incoming);
  });
  std::vector<at::Tensor> result;
  for (const at::Tensor& leaf : lane.work->leaves) {
    result.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
  }
  return result;
}

/// Whether two leaves, or a leaf and the layer above, share one gradient: less work than stock's, and wrong once one of them is changed in
/// place.
bool shared_gradients(const Workload& work) {
  std::set<const void*> seen;
  if (work.incoming.defined()) seen.insert(work.incoming.const_data_ptr());
  for (const at::Tensor& leaf : work.leaves) {
    if (leaf.grad().defined() && !seen.insert(leaf.grad().const_data_ptr()).second) return true;
  }
  return false;
}

void measure_row(benchmark::State& state, const Settings& settings, const Build& build, const Options& options, bool is_model) {
  reset();
  trim();  // the row before may have left buffers to be reused
  at::manual_seed(1);
  const int64_t base_bytes = live_bytes();
  const Workload work = build();
  Lane stock{&work, std::nullopt};
  Lane ours{&work, options};

  // Stock's peak first: whatever hindcast keeps from its first backward on counts only against it.
  time_backward(stock);
  const auto stock_peak = static_cast<double>(measure_peak(stock, base_bytes));
  if (const std::string error = differing_gradients(work, options); !error.empty()) {
    state.SkipWithError(error.c_str());
    return;
  }
  std::vector<double> warm = {time_backward(stock)};
  for (int i = 0; i < kWarmUp; ++i) {
    warm.push_back(time_backward(stock));
    time_backward(ours);
  }
  const auto our_peak = static_cast<double>(measure_peak(ours, base_bytes));

  const int backwards = backwards_per_block(settings, summarize(warm).median);
  std::optional<ByteFloor> floor;
  std::vector<double> floor_us;
  if (work.floor_bytes > 0) floor.emplace(work.floor_bytes);
  int64_t round = 0;
  for (auto _ : state) {
    run_round({&stock, &ours}, backwards, round++);
    if (floor) floor_us.push_back(floor->sample_us());
    state.SetIterationTime(ours.us.back() * 1e-6);
  }

  report_pair(state, stock, ours);
  if (settings.report) std::cerr << report();  // the floor's steps are not the row's
  if (is_model && settings.fused)
    report_floor(
        state, [&] { time_backward(ours); }, ours.time().median);
  if (floor) {
    state.counters["floor_us"] = summarize(floor_us).median;
    state.counters["floor_share"] = paired_quotients(floor_us, ours.us).median;
    state.counters["floor_mb"] = work.floor_bytes / (1 << 20);
  }
  state.counters["stock_peak_mb"] = stock_peak / (1 << 20);
  state.counters["hindcast_peak_mb"] = our_peak / (1 << 20);
  state.counters["peak_ratio"] = our_peak / stock_peak;
}

}  // namespace

bool agree(const at::Tensor& expected, const at::Tensor& seen) {
  if (!expected.defined() || !seen.defined()) return expected.defined() == seen.defined();
  // If a sum's terms cancel, both engines' results are rounding, small relative to the tensor's largest value.
  const double largest = expected.numel() == 0 ? 0 : expected.abs().max().item<double>();
  return at::allclose(seen, expected, /*rtol=*/1e-3, /*atol=*/1e-5 * std::max(1.0, largest));
}

double time_backward(const Lane& lane) {
  return under_engine(lane, [&] { return timed(*lane.work); });
}

void run_block(Lane& lane, int backwards) {
  const Stats before = stats();
  const std::vector<double> us = under_engine(lane, [&] {
    std::vector<double> each;
    for (int i = 0; i < backwards; ++i) each.push_back(timed(*lane.work));
    return each;
  });
  lane.us.push_back(summarize(us).median);
  if (!lane.options) return;
  const Stats after = stats();
  const double collect_us = after.collect_us - before.collect_us;
  const uint64_t nodes = after.nodes - before.nodes;
  lane.backwards += static_cast<uint64_t>(backwards);
  lane.hits += after.hits - before.hits;
  lane.collect_us.push_back(collect_us / backwards);
  lane.collect_ns_per_node.push_back(nodes == 0 ? 0 : 1e3 * collect_us / static_cast<double>(nodes));
}

int backwards_per_block(const Settings& settings, double backward_us) {
  return std::clamp(static_cast<int>(settings.block_us / backward_us), 1, 200);
}

void run_round(const std::vector<Lane*>& lanes, int backwards, int64_t round) {
  std::vector<Lane*> order = lanes;
  if (round % 2 == 1) std::reverse(order.begin(), order.end());
  for (Lane* lane : order) run_block(*lane, backwards);
}

int64_t measure_peak(const Lane& lane, int64_t base_bytes) {
  return under_engine(lane, [&] {
    lane.work->clear_grads();
    const at::Tensor loss = lane.work->forward();
    restart_peak();
    loss.backward(lane.work->incoming);
    return peak_bytes() - base_bytes;
  });
}

std::string differing_gradients(const Workload& work, const Options& options) {
  const std::vector<at::Tensor> expected = gradients({&work, std::nullopt});
  for (int call = 1; call <= 3; ++call) {
    const std::vector<at::Tensor> seen = gradients({&work, options});
    if (shared_gradients(work))
      return "two leaves share one gradient in hindcast's backward " + std::to_string(call) + ": nothing was timed";
    for (size_t i = 0; i < expected.size(); ++i) {
      if (agree(expected[i], seen[i])) continue;
      return "gradient of leaf " + std::to_string(i) + " in hindcast's backward " + std::to_string(call) +
             " differs from the stock engine's: nothing was timed; run the tests";
    }
  }
  return {};
}

Summary paired_quotients(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> quotients;
  for (size_t i = 0; i < over.size(); ++i) quotients.push_back(over[i] / under[i]);
  return summarize(quotients);
}

void report_pair(benchmark::State& state, const Lane& stock, const Lane& ours) {
  const Summary stock_time = stock.time();
  const Summary our_time = ours.time();
  const Summary ratio = paired_quotients(stock.us, ours.us);
  auto& counters = state.counters;
  counters["nodes"] = static_cast<double>(count_nodes(ours.work->forward()));
  counters["stock_us"] = stock_time.median;
  counters["stock_min_us"] = stock_time.min;
  counters["stock_iqr_us"] = stock_time.iqr();
  counters["hindcast_us"] = our_time.median;
  counters["hindcast_min_us"] = our_time.min;
  counters["hindcast_iqr_us"] = our_time.iqr();
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
  const Summary collect = summarize(ours.collect_us);
  counters["collect_us"] = collect.median;
  counters["collect_min_us"] = collect.min;
  counters["ns_per_node"] = summarize(ours.collect_ns_per_node).median;
  counters["hit_share"] = ours.hit_share();
}

void register_row(const Settings& settings, const std::string& name, int pairs, const Body& body) {
  for (const int threads : settings.threads) {
    const std::string full = name + "/t" + std::to_string(threads);
    benchmark::RegisterBenchmark(full.c_str(),
                                 [body, threads](benchmark::State& state) {
                                   at::set_num_threads(threads);
                                   state.counters["threads"] = threads;
                                   body(state);
                                 })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(pairs);
  }
}

void register_pair(const Settings& settings, const std::string& name, int pairs, const Build& build, Options options) {
  if (settings.fused) options.compiler = compilers::fused();
  options.async = false;
  register_row(settings, name, settings.pairs(pairs),
               [settings, build, options](benchmark::State& state) { measure_row(state, settings, build, options, false); });
}

void register_model(const Settings& settings, const std::string& name, int pairs, const Build& build) {
  Options options;
  if (settings.fused) options.compiler = compilers::fused();
  options.async = false;
  register_row(settings, name, settings.pairs(pairs),
               [settings, build, options](benchmark::State& state) { measure_row(state, settings, build, options, true); });
}

}  // namespace hindcast::bench
