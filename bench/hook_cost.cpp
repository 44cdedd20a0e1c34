// The cost of user code in a backward: the same chain with and without one no-op hook on its leaf, under both engines, all four lanes in
// turn. `hook_us` is hindcast's extra time, pair by pair.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

double median_extra(const Lane& with, const Lane& without) {
  std::vector<double> extra;
  for (size_t i = 0; i < with.us.size(); ++i) extra.push_back(with.us[i] - without.us[i]);
  return summarize(extra).median;
}

void measure(benchmark::State& state, const Settings& settings, int ops) {
  reset();
  const Workload plain = mixed_chain(ops);
  const Workload hook = hooked(mixed_chain(ops));
  if (const std::string error = differing_gradients(hook, Options()); !error.empty()) {
    state.SkipWithError(error.c_str());
    return;
  }
  Lane plain_stock{&plain, std::nullopt};
  Lane hook_stock{&hook, std::nullopt};
  Lane plain_ours{&plain, Options()};
  Lane hook_ours{&hook, Options()};
  const std::vector<Lane*> lanes = {&plain_stock, &plain_ours, &hook_stock, &hook_ours};
  std::vector<double> warm;
  for (int i = 0; i < 2; ++i) {
    for (const Lane* lane : lanes) warm.push_back(time_backward(*lane));
  }

  const int backwards = backwards_per_block(settings, summarize(warm).median);
  int64_t round = 0;
  for (auto _ : state) {
    run_round(lanes, backwards, round++);
    state.SetIterationTime(hook_ours.us.back() * 1e-6);
  }
  report_pair(state, hook_stock, hook_ours);
  state.counters["hook_us"] = median_extra(hook_ours, plain_ours);
  state.counters["stock_hook_us"] = median_extra(hook_stock, plain_stock);
  state.counters["plain_collect_us"] = summarize(plain_ours.collect_us).median;
}

}  // namespace

void register_hook_cost(const Settings& settings) {
  for (const int ops : {10, 100, 1000}) {  // on longer chains a hook's microseconds drown in the noise
    register_row(settings, "hook/" + std::to_string(ops), settings.pairs(kPairs),
                 [settings, ops](benchmark::State& state) { measure(state, settings, ops); });
  }
}

}  // namespace hindcast::bench
