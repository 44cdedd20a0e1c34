// Programs whose graphs change from step to step, some of them in every step: what hindcast costs if captures do not pay, in time and in
// memory. A back-off shows as `fallback_share`, the cache's bound as `resident_mb`.
//
// A row has four parts. (1) The first steps of the program, alternately on both engines; gradients are compared. (2), (3) After a reset(),
// this many steps of the stock engine, then the same steps of hindcast: each begins with freed pages returned to the system, and the growth
// of resident memory is counted. This is hindcast's warm-up, too. (4) Blocks of both in turn, each of the same steps.
//
// A block's value is the mean of its steps, not the median: what one step in 20 costs is part of the price. `overall_ratio` is the quotient
// of the sums of all blocks, so that a rare expensive step shows even if most blocks have none.

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>

#include "bench/changing_programs.h"
#include "bench/harness.h"
#include "bench/memory.h"
#include "bench/suites.h"

namespace hindcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// One of the two engines and its position in the program.
struct Side {
  const Program* program = nullptr;
  std::optional<Options> options = {};  // none: the stock engine, no guard
  int64_t step = 0;

  // Of the timed steps.
  std::vector<double> us = {};  // one a block
  uint64_t backwards = 0;
  uint64_t hits = 0;
  uint64_t fallbacks = 0;

  double share(uint64_t count) const { return backwards == 0 ? 0 : static_cast<double>(count) / static_cast<double>(backwards); }
};

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }
double mean(const std::vector<double>& values) { return values.empty() ? 0 : sum(values) / static_cast<double>(values.size()); }

uint64_t total(const std::map<std::string, uint64_t>& counts) {
  uint64_t total = 0;
  for (const auto& [reason, count] : counts) total += count;
  return total;
}

void clear_grads(const Program& program) {
  for (const at::Tensor& leaf : program.leaves) leaf.mutable_grad().reset();
}

double time_step(Side& side) {
  clear_grads(*side.program);
  const at::Tensor loss = side.program->forward(side.step++);
  const Clock::time_point start = Clock::now();
  loss.backward();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Microseconds of the timed ones among the next `count` steps.
std::vector<double> run_steps(Side& side, int64_t count) {
  std::optional<Guard> guard;
  if (side.options) guard.emplace(enable(*side.options));
  std::vector<double> us;
  for (int64_t i = 0; i < count; ++i) {
    if (!side.program->times(side.step)) {
      time_step(side);
      continue;
    }
    const Stats before = stats();
    us.push_back(time_step(side));
    const Stats after = stats();
    ++side.backwards;
    side.hits += after.hits - before.hits;
    side.fallbacks += total(after.fallbacks_by_reason) - total(before.fallbacks_by_reason);
  }
  return us;
}

/// How much this many steps add to the process's memory, in MiB.
double resident_growth(Side& side, int64_t steps) {
  return_freed_pages();
  const int64_t before = resident_bytes();
  run_steps(side, steps);
  clear_grads(*side.program);
  return static_cast<double>(resident_bytes() - before) / (1 << 20);
}

std::vector<at::Tensor> copies_of_grads(const Program& program) {
  std::vector<at::Tensor> grads;
  for (const at::Tensor& leaf : program.leaves) grads.push_back(leaf.grad().clone());
  return grads;
}

/// The first steps, alternately. Returns the difference, for SkipWithError.
std::string run_first_steps(benchmark::State& state, Side& stock, Side& ours, int64_t steps) {
  std::vector<double> stock_us, our_us;
  const auto append = [](std::vector<double>& to, const std::vector<double>& more) { to.insert(to.end(), more.begin(), more.end()); };
  for (int64_t step = 0; step < steps; ++step) {
    append(stock_us, run_steps(stock, 1));
    const std::vector<at::Tensor> expected = copies_of_grads(*stock.program);
    append(our_us, run_steps(ours, 1));
    for (size_t i = 0; i < expected.size(); ++i) {
      if (agree(expected[i], ours.program->leaves[i].grad())) continue;
      return "gradient of leaf " + std::to_string(i) + " in hindcast's backward " + std::to_string(step + 1) +
             " differs from the stock engine's: nothing was timed; run the tests";
    }
  }
  state.counters["first_steps_stock_us"] = mean(stock_us);
  state.counters["first_steps_us"] = mean(our_us);
  state.counters["first_steps_ratio"] = sum(stock_us) / sum(our_us);
  return {};
}

double mean_nodes(const Program& program, int64_t from) {
  std::vector<double> nodes;
  for (int64_t step = from; step < from + 32; ++step) {
    if (program.times(step)) nodes.push_back(static_cast<double>(count_nodes(program.forward(step))));
  }
  return mean(nodes);
}

/// How many steps a row takes.
struct Length {
  int64_t first_steps = 64;
  int64_t warm_up = 320;
  int64_t least_in_block = 16;
  int pairs = kPairs;
};

void measure(benchmark::State& state, const Settings& settings, const BuildProgram& build, const Length& length) {
  const auto forget = [] {
    reset();
    trim();
    wait();  // for the kernel that is being compiled; those of freed graphs are not compiled
  };
  forget();
  at::manual_seed(1);
  const Program program = build();
  Options options;  // kernels are compiled in the background, as in a program
  if (settings.fused) options.compiler = compilers::fused();

  Side first_stock{&program}, first_ours{&program, options};
  run_steps(first_stock, 4);
  first_stock.step = 0;
  if (const std::string error = run_first_steps(state, first_stock, first_ours, length.first_steps); !error.empty()) {
    state.SkipWithError(error.c_str());
    return;
  }
  forget();

  Side stock{&program, std::nullopt, first_stock.step}, ours{&program, options, first_ours.step};
  state.counters["stock_resident_mb"] = resident_growth(stock, length.warm_up);
  state.counters["resident_mb"] = resident_growth(ours, length.warm_up);
  stock.backwards = ours.backwards = ours.hits = ours.fallbacks = 0;

  const double usual_us = state.counters["first_steps_stock_us"];
  // An even number: a block has as many of each of two alternating kinds.
  const int64_t steps = (std::max<int64_t>(backwards_per_block(settings, usual_us), length.least_in_block) + 1) / 2 * 2;
  int64_t round = 0;
  for (auto _ : state) {
    const bool stock_first = round++ % 2 == 0;
    for (Side* side : stock_first ? std::vector<Side*>{&stock, &ours} : std::vector<Side*>{&ours, &stock}) {
      side->us.push_back(mean(run_steps(*side, steps)));
    }
    state.SetIterationTime(ours.us.back() * 1e-6);
  }

  const Summary ratio = paired_quotients(stock.us, ours.us);
  auto& counters = state.counters;
  counters["nodes"] = mean_nodes(program, ours.step);
  counters["stock_us"] = summarize(stock.us).median;
  counters["hindcast_us"] = summarize(ours.us).median;
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
  counters["overall_ratio"] = sum(stock.us) / sum(ours.us);
  counters["hit_share"] = ours.share(ours.hits);
  counters["fallback_share"] = ours.share(ours.fallbacks);
  if (settings.report) std::cerr << hindcast::report();
  forget();  // the next suite's rows must not run with these graphs in the cache
}

}  // namespace

void register_changing(const Settings& settings) {
  const auto row = [&](const std::string& name, const BuildProgram& build, Length length = {}) {
    if (settings.quick) length = {.first_steps = 8, .warm_up = 16, .least_in_block = 4};
    register_row(settings, "changing/" + name, settings.pairs(length.pairs),
                 [settings, build, length](benchmark::State& state) { measure(state, settings, build, length); });
  };
  row("new_structure/20", [] { return new_structures(20, 16); });
  row("new_structure/200", [] { return new_structures(200, 16); });
  row("new_structure/2000", [] { return new_structures(2000, 16); }, {.pairs = kSlowPairs});
  for (const int count : {64, 256, 257}) {  // 256 is the default of Options::cache_size
    row(std::to_string(count) + "_in_turn", [count] { return structures_in_turn(count, 50); }, {.warm_up = 4 * count});
  }
  row("two_kinds/same", [] { return two_kinds(100, Kind::Same); });
  row("two_kinds/new", [] { return two_kinds(100, Kind::New); });
  row("episodes", [] { return episodes(); }, {.pairs = kSlowPairs});
  row("rnn_lengths", [] { return rnn_lengths(); });
  row("opaque", [] { return opaque(1 << 10); });
  row("opaque_32mb", [] { return opaque((32 << 20) / 10 / 4); }, {.warm_up = 64, .least_in_block = 4, .pairs = kSlowPairs});
  row("deviating_hook", [] { return deviating_hook(400); });
}

}  // namespace hindcast::bench
