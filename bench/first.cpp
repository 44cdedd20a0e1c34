// The first backward of a graph: captured, checked against an empty cache, run. Every repeat forgets all graphs first. `first_ratio` is its
// time over the stock engine's backward of the same graph (which is warm, so the comparison is the strict one); lower is better. `cold_us`
// is the very first repeat: in the first row of a run it also includes the process's one-time costs.

#include <ATen/ATen.h>

#include "bench/harness.h"
#include "bench/memory.h"
#include "bench/settings.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

void measure(benchmark::State& state, const Settings& settings, const Build& build) {
  reset();
  at::manual_seed(1);
  const int64_t base_bytes = live_bytes();
  const Workload work = build();
  Lane stock{&work, std::nullopt};
  Options options;  // kernels are compiled in the background, as in a program
  if (settings.fused) options.compiler = compilers::fused();
  Lane ours{&work, options};
  for (int i = 0; i < 2; ++i) time_backward(stock);
  const auto stock_peak = static_cast<double>(measure_peak(stock, base_bytes));
  const double cold_us = time_backward(ours);

  uint64_t misses = 0;
  int64_t round = 0;
  for (auto _ : state) {
    if (round % 2 == 0) run_block(stock, 1);
    reset();
    run_block(ours, 1);
    misses += stats().misses;  // reset() has zeroed the counters
    if (round % 2 == 1) run_block(stock, 1);
    ++round;
    state.SetIterationTime(ours.us.back() * 1e-6);
  }
  reset();
  const auto our_peak = static_cast<double>(measure_peak(ours, base_bytes));

  const Summary stock_time = stock.time();
  const Summary our_time = ours.time();
  const Summary ratio = paired_quotients(ours.us, stock.us);
  auto& counters = state.counters;
  counters["nodes"] = static_cast<double>(count_nodes(work.forward()));
  counters["stock_us"] = stock_time.median;
  counters["first_us"] = our_time.median;
  counters["first_min_us"] = our_time.min;
  counters["first_iqr_us"] = our_time.iqr();
  counters["cold_us"] = cold_us;
  counters["first_ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
  counters["first_peak_ratio"] = our_peak / stock_peak;
  counters["miss_share"] = static_cast<double>(misses) / static_cast<double>(round);
}

}  // namespace

void register_first(const Settings& settings) {
  const auto row = [&](const std::string& name, int pairs, const Build& build) {
    register_row(settings, "first/" + name, settings.pairs(pairs),
                 [settings, build](benchmark::State& state) { measure(state, settings, build); });
  };
  row("chain/mixed/100", 51, [] { return mixed_chain(100); });
  row("chain/mixed/1000", 51, [] { return mixed_chain(1000); });
  row("chain/mul/1000", 51, [] { return mul_chain(1000); });
  row("mlp/64-128-64/b32", 51, [] { return mlp({64, 128, 64}, 32); });
  row("mlp/784-512-512-10/b128", 51, [] { return mlp({784, 512, 512, 10}, 128); });
  row("mlp/784-2048-2048-10/b256", kSlowPairs, [] { return mlp({784, 2048, 2048, 10}, 256); });
  row("cnn/8x8/b64", 51, [] { return resnet(8, 1, 16, 64); });
  row("cnn/32x32/b16", kSlowPairs, [] { return resnet(32, 3, 16, 16); });
  row("gpt/explicit", kSlowPairs, [] { return gpt(Attention::Explicit); });
}

}  // namespace hindcast::bench
