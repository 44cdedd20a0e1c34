// A process that has used hindcast and now has no guard must run the stock engine as fast as one that never enabled it. Here stock_us is
// the process that never did, hindcast_us this one after an enable(), without a guard; both are the stock engine, so ratio is 1 up to
// noise. `guard/cost` is the price of a guard itself.

#include <chrono>

#include "bench/harness.h"
#include "bench/pristine.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

void enable_once() {
  const Workload work = mixed_chain(10);
  for (int i = 0; i < 3; ++i) time_backward({&work, Options()});
}

void measure(benchmark::State& state, Pristine& pristine, PristineWork work, int backwards) {
  enable_once();
  const PristineBlock block{work, static_cast<int>(state.counters["threads"]), backwards};
  std::vector<double> never, off;
  const auto run_never = [&] { never.push_back(pristine.run(block)); };
  const auto run_off = [&] { off.push_back(run_stock_block(block)); };
  run_never();  // warms both up
  run_off();
  never.clear();
  off.clear();
  bool never_first = true;
  for (auto _ : state) {
    if (never_first) run_never();
    run_off();
    if (!never_first) run_never();
    never_first = !never_first;
    state.SetIterationTime(off.back() * 1e-6);
  }
  const Summary never_time = summarize(never);
  const Summary off_time = summarize(off);
  const Summary ratio = paired_quotients(never, off);
  auto& counters = state.counters;
  counters["stock_us"] = never_time.median;
  counters["stock_min_us"] = never_time.min;
  counters["stock_iqr_us"] = never_time.iqr();
  counters["hindcast_us"] = off_time.median;
  counters["hindcast_min_us"] = off_time.min;
  counters["hindcast_iqr_us"] = off_time.iqr();
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
}

void measure_guard(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  constexpr int kGuards = 10000;
  const Options options;
  std::vector<double> ns;
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kGuards; ++i) const auto guard = enable(options);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / kGuards;
    ns.push_back(seconds * 1e9);
    state.SetIterationTime(seconds);
  }
  state.counters["guard_ns"] = summarize(ns).median;
}

}  // namespace

void register_guard_off(const Settings& settings, Pristine& pristine) {
  const auto row = [&](const std::string& name, PristineWork work, int backwards) {
    register_row(settings, "guard_off/" + name, settings.pairs(kPairs),
                 [&pristine, work, backwards](benchmark::State& state) { measure(state, pristine, work, backwards); });
  };
  row("chain/mixed/1000", PristineWork::Chain, 1);
  row("mlp/64-128-64/b32", PristineWork::Mlp, 15);
  register_row(settings, "guard/cost", settings.pairs(kPairs), measure_guard);
}

}  // namespace hindcast::bench
