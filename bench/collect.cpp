// What a hit costs before it runs: the walk, the key and the look-up, alternately by the typed collectors and by LibTorch's visitor.
// bench/table.py fits the fixed part and the slope over the sizes.

#include "bench/harness.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

Options with(Collector collector) {
  Options options;
  options.collector = collector;
  return options;
}

void measure_collectors(benchmark::State& state, const Settings& settings, int ops) {
  reset();
  const Workload work = mixed_chain(ops);
  Lane typed{&work, with(Collector::Typed)};
  Lane visitor{&work, with(Collector::Visitor)};
  std::vector<double> warm;
  for (int i = 0; i < 3; ++i) {
    warm.push_back(time_backward(typed));
    time_backward(visitor);
  }

  const int backwards = backwards_per_block(settings, summarize(warm).median);
  int64_t round = 0;
  for (auto _ : state) {
    run_round({&typed, &visitor}, backwards, round++);
    state.SetIterationTime(typed.collect_us.back() * 1e-6);
  }
  auto& counters = state.counters;
  counters["nodes"] = static_cast<double>(count_nodes(work.forward()));
  for (const Lane* lane : {&typed, &visitor}) {
    const std::string who = lane == &typed ? "typed_" : "visitor_";
    const Summary collect = summarize(lane->collect_us);
    counters[who + "collect_us"] = collect.median;
    counters[who + "collect_min_us"] = collect.min;
    counters[who + "collect_iqr_us"] = collect.iqr();
    counters[who + "ns_per_node"] = summarize(lane->collect_ns_per_node).median;
    counters[who + "hit_share"] = lane->hit_share();
  }
}

}  // namespace

void register_collect(const Settings& settings) {
  for (const int ops : {10, 100, 1000, 10000}) {
    const int pairs = ops < 10000 ? kPairs : kSlowPairs;
    register_row(settings, "collect/" + std::to_string(ops), settings.pairs(pairs),
                 [settings, ops](benchmark::State& state) { measure_collectors(state, settings, ops); });
  }
}

}  // namespace hindcast::bench
