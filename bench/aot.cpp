// Functions compiled ahead of time, forward and backward, against the same functions run eagerly. A lane's forward and backward are timed
// separately: `ratio` is that of both together, `forward_ratio` and `backward_ratio` are theirs. Peaks are those of a whole step. The
// models' rows also have the eager forward with its backward under a guard (`guard_ratio`), and both (`both_ratio`).
//
// `aot/first/...`: the first call of a new function with its backward, which are traced, over a warm eager step; lower is better.

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "bench/aot_workloads.h"
#include "bench/harness.h"
#include "bench/memory.h"
#include "bench/plan_floor.h"
#include "bench/suites.h"
#include "hindcast/aot_function.h"

namespace hindcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Per block: a program's next step then finds the caches as its own last step left them, not as eager's did.
constexpr int kLeastSteps = 5;
// For rows whose steps take tens of milliseconds.
constexpr int kFewPairs = 9;

using Function = std::function<at::Tensor(const Tensors&)>;

struct AotLane {
  const AotWork* work;
  Function call;
  std::optional<Options> guard = {};
  std::vector<double> us = {}, forward_us = {}, backward_us = {};
};

struct StepTime {
  double forward_us, backward_us;
};

StepTime time_step(const AotLane& lane) {
  for (at::Tensor leaf : lane.work->leaves) leaf.mutable_grad() = at::Tensor();
  const Clock::time_point start = Clock::now();
  const at::Tensor result = lane.call(lane.work->arguments);
  const Clock::time_point between = Clock::now();
  result.backward(lane.work->incoming);
  const Clock::time_point stop = Clock::now();
  const auto us = [](auto from, auto to) { return std::chrono::duration<double, std::micro>(to - from).count(); };
  return {us(start, between), us(between, stop)};
}

template <class Call>
auto guarded(const AotLane& lane, const Call& call) {
  if (!lane.guard) return call();
  const auto guard = enable(*lane.guard);
  return call();
}

void run_block(AotLane& lane, int steps) {
  std::vector<double> us, forward_us, backward_us;
  guarded(lane, [&] {
    for (int i = 0; i < steps; ++i) {
      const StepTime step = time_step(lane);
      us.push_back(step.forward_us + step.backward_us);
      forward_us.push_back(step.forward_us);
      backward_us.push_back(step.backward_us);
    }
  });
  lane.us.push_back(summarize(us).median);
  lane.forward_us.push_back(summarize(forward_us).median);
  lane.backward_us.push_back(summarize(backward_us).median);
}

int64_t peak_of_step(const AotLane& lane, int64_t base_bytes) {
  return guarded(lane, [&] {
    for (at::Tensor leaf : lane.work->leaves) leaf.mutable_grad() = at::Tensor();
    restart_peak();
    lane.call(lane.work->arguments).backward(lane.work->incoming);
    return peak_bytes() - base_bytes;
  });
}

/// The result and the gradients; `seed` determines dropout's numbers.
Tensors outcome_of(const AotLane& lane) {
  at::manual_seed(7);
  return guarded(lane, [&] {
    for (at::Tensor leaf : lane.work->leaves) leaf.mutable_grad() = at::Tensor();
    const at::Tensor result = lane.call(lane.work->arguments);
    result.backward(lane.work->incoming);
    Tensors outcome = {result.detach().clone()};
    for (const at::Tensor& leaf : lane.work->leaves) outcome.push_back(leaf.grad().defined() ? leaf.grad().clone() : at::Tensor());
    return outcome;
  });
}

/// With equal seeds the traced call gives eager's numbers; if kernels draw, later calls have numbers of their own.
std::string differs(const AotLane& eager, const AotLane& lane) {
  Tensors expected = outcome_of(eager);
  for (int call = 1; call <= 3; ++call) {
    if (call == 2 && lane.work->draws) expected = outcome_of(lane);
    const Tensors seen = outcome_of(lane);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (agree(expected[i], seen[i])) continue;
      return (i == 0 ? "the result" : "gradient " + std::to_string(i - 1)) + " of call " + std::to_string(call) +
             " is another than it should be: nothing was timed; run the tests";
    }
  }
  return {};
}

void report(benchmark::State& state, const AotLane& eager, const AotLane& ours) {
  auto& counters = state.counters;
  counters["stock_us"] = summarize(eager.us).median;
  counters["stock_forward_us"] = summarize(eager.forward_us).median;
  counters["stock_backward_us"] = summarize(eager.backward_us).median;
  counters["hindcast_us"] = summarize(ours.us).median;
  counters["forward_us"] = summarize(ours.forward_us).median;
  counters["backward_us"] = summarize(ours.backward_us).median;
  const Summary ratio = paired_quotients(eager.us, ours.us);
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
  counters["forward_ratio"] = paired_quotients(eager.forward_us, ours.forward_us).median;
  counters["backward_ratio"] = paired_quotients(eager.backward_us, ours.backward_us).median;
}

Compiler compiler_for(const Settings& settings) { return settings.fused ? compilers::fused() : compilers::eager(); }

AotOptions options_for(const Settings& settings) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compiler_for(settings);
  return options;
}

struct AotRow {
  AotWork (*build)(at::IntArrayRef sizes) = nullptr;
  std::vector<int64_t> sizes = {};
  std::function<AotWork()> model = {};
  Partition partition = partition::min_cut;

  AotWork make() const { return model ? model() : build(sizes); }
};

void measure(benchmark::State& state, const Settings& settings, const AotRow& row) {
  reset();
  trim();
  at::manual_seed(1);
  const int64_t base_bytes = live_bytes();
  const AotWork work = row.make();
  AotOptions options = options_for(settings);
  options.partition = row.partition;
  options.async = false;
  Options guard;
  guard.compiler = compiler_for(settings);
  guard.async = false;
  const AotFunction<Function> compiled(work.function, options);
  AotLane eager{&work, work.function}, ours{&work, compiled}, backward_alone{&work, work.function, guard}, both{&work, compiled, guard};

  time_step(eager);
  const auto stock_peak = static_cast<double>(peak_of_step(eager, base_bytes));
  std::vector<AotLane*> lanes = {&eager, &ours};
  if (row.model) lanes.insert(lanes.end(), {&backward_alone, &both});
  AotOptions comparable = options;
  comparable.fallback_random = true;  // eager's numbers; what is timed uses the kernels' own
  const AotLane compared{&work, AotFunction<Function>(work.function, comparable)};
  time_step(ours);  // traced
  for (size_t i = 1; i < lanes.size(); ++i) {
    const bool is_known = lanes[i] == &both && work.draws;  // its function is no longer traced
    const AotLane& lane = lanes[i] == &ours ? compared : *lanes[i];
    if (const std::string error = differs(is_known ? ours : eager, lane); !error.empty()) return state.SkipWithError(error.c_str());
  }
  std::vector<double> warm;
  for (int i = 0; i < 3; ++i) {
    const StepTime step = time_step(eager);
    warm.push_back(step.forward_us + step.backward_us);
    time_step(ours);
  }
  const auto our_peak = static_cast<double>(peak_of_step(ours, base_bytes));
  const uint64_t calls = compiled.stats().calls, hits = compiled.stats().hits;

  const int steps = settings.quick ? 1 : std::max(kLeastSteps, backwards_per_block(settings, summarize(warm).median));
  int64_t round = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < lanes.size(); ++i) run_block(*lanes[round % 2 == 0 ? i : lanes.size() - 1 - i], steps);
    ++round;
    state.SetIterationTime(ours.us.back() * 1e-6);
  }
  report(state, eager, ours);
  auto& counters = state.counters;
  counters["hit_share"] = static_cast<double>(compiled.stats().hits - hits) / static_cast<double>(compiled.stats().calls - calls);
  counters["stock_peak_mb"] = stock_peak / (1 << 20);
  counters["hindcast_peak_mb"] = our_peak / (1 << 20);
  counters["peak_ratio"] = our_peak / stock_peak;
  if (row.model) {
    if (settings.fused)
      report_floor(
          state, [&] { time_step(ours); }, summarize(ours.us).median);
    counters["guard_ratio"] = paired_quotients(eager.us, backward_alone.us).median;
    counters["both_ratio"] = paired_quotients(eager.us, both.us).median;
  }
  if (settings.report) std::cerr << hindcast::report();
}

void measure_first(benchmark::State& state, const Settings& settings, const std::function<AotWork()>& build) {
  reset();
  at::manual_seed(1);
  const AotWork work = build();
  AotLane eager{&work, work.function};
  for (int i = 0; i < 3; ++i) time_step(eager);
  std::vector<double> first_us, forward_us;
  for (auto _ : state) {
    run_block(eager, 1);
    const AotFunction<Function> compiled(work.function, options_for(settings));  // kernels are compiled in the background, as in a program
    AotLane first{&work, compiled};
    run_block(first, 1);
    first_us.push_back(first.us.back());
    forward_us.push_back(first.forward_us.back());
    state.SetIterationTime(first_us.back() * 1e-6);
  }
  const Summary ratio = paired_quotients(first_us, eager.us);
  auto& counters = state.counters;
  counters["stock_us"] = summarize(eager.us).median;
  counters["first_us"] = summarize(first_us).median;
  counters["first_forward_ratio"] = paired_quotients(forward_us, eager.forward_us).median;
  counters["first_ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
}

}  // namespace

void register_aot(const Settings& settings) {
  const auto add = [&](const std::string& name, int pairs, const AotRow& row) {
    register_row(settings, "aot/" + name, settings.pairs(pairs),
                 [settings, row](benchmark::State& state) { measure(state, settings, row); });
  };
  const auto first = [&](const std::string& name, int repeats, const std::function<AotWork()>& build) {
    register_row(settings, "aot/first/" + name, settings.pairs(repeats),
                 [settings, build](benchmark::State& state) { measure_first(state, settings, build); });
  };
  add("cosines/standard/1024x2048", kSlowPairs, {four_cosines, {1024, 2048}, {}, partition::standard});
  add("cosines/min_cut/1024x2048", kSlowPairs, {four_cosines, {1024, 2048}});
  add("cosines/min_cut/2x4", kPairs, {four_cosines, {2, 4}});
  for (const AotPattern& pattern : aot_patterns()) {
    for (const auto& [size, sizes] : std::vector<std::pair<std::string, std::vector<int64_t>>>{{"8x256x512", {8, 256, 512}},
                                                                                               {"8x512x1024", {8, 512, 1024}},
                                                                                               {"4x1024x1024", {4, 1024, 1024}},
                                                                                               {"2x2048x2048", {2, 2048, 2048}}}) {
      add("xformers/" + pattern.name + "/" + size, kFewPairs, {pattern.build, sizes});
    }
  }
  for (const AotShortRows& rows : aot_short_rows()) {
    for (const std::vector<int64_t>& sizes : rows.sizes) {
      const std::string size = std::to_string(sizes[0]) + "x" + std::to_string(sizes[1]);
      add("short_rows/" + rows.name + "/" + size, kPairs, {rows.build, sizes});
    }
  }
  for (const auto& [name, build] : aot_models()) add(name, kFewPairs, {nullptr, {}, build});
  for (const auto& [name, build] : aot_models()) first(name, kSlowPairs, build);
  first("cosines/1024x2048", kSlowPairs, [] { return four_cosines({1024, 2048}); });
  first("cosines/2x4", 51, [] { return four_cosines({2, 4}); });
  first("bias_gelu/8x8", 51, [] { return aot_patterns()[1].build({8, 8}); });
}

}  // namespace hindcast::bench
