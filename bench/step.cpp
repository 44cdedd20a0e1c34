// The whole training step: forward, backward, clipping and the optimizer. Eager's side is the program as LibTorch has it; ours has the
// forward and backward ahead of time, under a guard, and compiled_step().
//
// `train_step/...`: the same steps in one call.
// `step/optimizer/...`: the optimizer's step alone, on gradients that stay. `floor_us`: the step's reads and writes of memory as a copy.
// `step/checkpoint`: small blocks, each of which runs twice in both lanes; `us_of_one`: what a checkpoint takes beside that.

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <iostream>
#include <string>

#include "bench/aot_workloads.h"
#include "bench/byte_floor.h"
#include "bench/harness.h"
#include "bench/plan_floor.h"
#include "bench/suites.h"
#include "engine/aot/aot_function.h"
#include "engine/optim/compiled_step.h"
#include "engine/saved/checkpoint.h"
#include "engine/train/train_step.h"

namespace hindcast::bench {
namespace {

using Clock = std::chrono::steady_clock;
using torch::optim::Optimizer;
using MakeOptimizer = std::function<std::shared_ptr<Optimizer>(const Tensors& leaves)>;

constexpr double kRate = 1e-6;  // thousands of steps of a benchmark leave the numbers as they are
constexpr double kMaxNorm = 1.0;

std::shared_ptr<Optimizer> adam(const Tensors& leaves) {
  return std::make_shared<torch::optim::Adam>(leaves, torch::optim::AdamOptions(kRate));
}
std::shared_ptr<Optimizer> sgd(const Tensors& leaves) {
  return std::make_shared<torch::optim::SGD>(leaves, torch::optim::SGDOptions(kRate).momentum(0.9));
}

double us_of(const std::function<void()>& run) {
  const Clock::time_point start = Clock::now();
  run();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct StepLane {
  std::function<void()> run;
  std::vector<double> us = {};

  void run_block(int steps) {
    std::vector<double> of_steps;
    for (int i = 0; i < steps; ++i) of_steps.push_back(us_of(run));
    us.push_back(summarize(of_steps).median);
  }
};

void run_rounds(benchmark::State& state, const Settings& settings, StepLane& stock, StepLane& ours, const ByteFloor* floor) {
  for (int i = 0; i < 3; ++i) {
    stock.run();
    ours.run();
  }
  const int steps = settings.quick ? 1 : backwards_per_block(settings, us_of(stock.run));
  std::vector<double> floor_us;
  int64_t round = 0;
  for (auto _ : state) {
    (round % 2 == 0 ? stock : ours).run_block(steps);
    (round % 2 == 0 ? ours : stock).run_block(steps);
    if (floor != nullptr) floor_us.push_back(floor->sample_us());
    ++round;
    state.SetIterationTime(ours.us.back() * 1e-6);
  }
  auto& counters = state.counters;
  counters["stock_us"] = summarize(stock.us).median;
  counters["hindcast_us"] = summarize(ours.us).median;
  const Summary ratio = paired_quotients(stock.us, ours.us);
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
  if (floor != nullptr) {
    counters["floor_us"] = summarize(floor_us).median;
    counters["floor_share"] = paired_quotients(floor_us, ours.us).median;
  }
}

struct OptimizerRow {
  int count;
  int64_t floats;
  MakeOptimizer make;
  bool clips = false;
  double passes = 0;  // over the memory of a parameter; 0: the row has no floor
};

void measure_optimizer(benchmark::State& state, const Settings& settings, const OptimizerRow& row) {
  at::manual_seed(1);
  Tensors leaves;
  for (int i = 0; i < row.count; ++i) {
    leaves.push_back(at::randn({row.floats}).requires_grad_());
    leaves.back().mutable_grad() = at::randn({row.floats});
  }
  const auto of_stock = row.make(leaves), of_ours = row.make(leaves);
  auto step = compiled_step(*of_ours, row.clips ? std::optional(ClipGradNorm{kMaxNorm}) : std::nullopt);
  StepLane stock{[&] {
    if (row.clips) torch::nn::utils::clip_grad_norm_(leaves, kMaxNorm);
    of_stock->step();
  }};
  StepLane ours{[&] { step(); }};
  std::optional<ByteFloor> floor;
  if (row.passes != 0) floor.emplace(row.passes * static_cast<double>(row.count) * static_cast<double>(row.floats) * sizeof(float));
  run_rounds(state, settings, stock, ours, floor ? &*floor : nullptr);
  if (step.counts().original != 0) state.SkipWithError(("not by kernels: " + step.counts().why_original).c_str());
}

void measure_step(benchmark::State& state, const Settings& settings, const std::function<AotWork()>& build) {
  reset();
  trim();
  at::manual_seed(1);
  const AotWork work = build();
  const Compiler compiler = settings.fused ? compilers::fused() : compilers::eager();
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compiler;
  options.async = false;
  Options guard_options;
  guard_options.compiler = compiler;
  guard_options.async = false;
  const AotFunction<std::function<at::Tensor(const Tensors&)>> compiled(work.function, options);
  const auto of_stock = adam(work.leaves), of_ours = adam(work.leaves);
  auto step = compiled_step(*of_ours, ClipGradNorm{kMaxNorm});
  StepLane stock{[&] {
    of_stock->zero_grad();
    work.function(work.arguments).backward(work.incoming);
    torch::nn::utils::clip_grad_norm_(work.leaves, kMaxNorm);
    of_stock->step();
  }};
  StepLane ours{[&] {
    const auto guard = enable(guard_options);
    of_ours->zero_grad();
    compiled(work.arguments).backward(work.incoming);
    step();
  }};
  run_rounds(state, settings, stock, ours, nullptr);
  constexpr double kPassesOfClippedAdam = 8;
  double bytes = 0;
  for (const at::Tensor& leaf : work.leaves) bytes += kPassesOfClippedAdam * static_cast<double>(leaf.nbytes());
  if (settings.report) std::cerr << report();
  if (settings.fused) report_floor(state, ours.run, summarize(ours.us).median, bytes);
  if (step.counts().original != 0) state.SkipWithError(("not by kernels: " + step.counts().why_original).c_str());
}

// The same step in one call.
void measure_train_step(benchmark::State& state, const Settings& settings, const std::function<AotWork()>& build) {
  reset();
  trim();
  at::manual_seed(1);
  const AotWork work = build();
  TrainStepOptions options;
  options.clip = ClipGradNorm{kMaxNorm};
  options.aot.fw_compiler = options.aot.bw_compiler = settings.fused ? compilers::fused() : compilers::eager();
  options.aot.async = false;
  const auto of_stock = adam(work.leaves), of_ours = adam(work.leaves);
  auto step = train_step(*of_ours, work.function, options);
  StepLane stock{[&] {
    of_stock->zero_grad();
    work.function(work.arguments).backward();
    torch::nn::utils::clip_grad_norm_(work.leaves, kMaxNorm);
    of_stock->step();
  }};
  StepLane ours{[&] { step(work.arguments); }};
  run_rounds(state, settings, stock, ours, nullptr);
  if (settings.report) std::cerr << report();
  const TrainStepStats stats = step.stats();
  if (stats.eager != 0 || stats.updates.original != 0) state.SkipWithError("some of it was no program");
}

void measure_checkpoint(benchmark::State& state, const Settings& settings) {
  constexpr int kBlocks = 16;
  const auto block = [](const at::Tensor& x, const at::Tensor& weight) { return x.mm(weight).tanh(); };
  const at::Tensor x = at::randn({8, 8}), weight = at::randn({8, 8}).requires_grad_();
  const auto chain = [&](const auto& call) {
    at::Tensor y = x;
    for (int i = 0; i < kBlocks; ++i) y = call(y);
    return y;
  };
  StepLane stock{[&] {
    {
      const at::NoGradGuard no_grad;
      chain([&](const at::Tensor& y) { return block(y, weight); });
    }
    chain([&](const at::Tensor& y) { return block(y, weight); }).sum().backward();
  }};
  StepLane ours{[&] { chain([&](const at::Tensor& y) { return checkpoint(block, y, weight); }).sum().backward(); }};
  run_rounds(state, settings, stock, ours, nullptr);
  state.counters["us_of_one"] = (summarize(ours.us).median - summarize(stock.us).median) / kBlocks;
}

}  // namespace

void register_step(const Settings& settings) {
  const auto add = [&](const std::string& name, int pairs, const OptimizerRow& row) {
    register_row(settings, "step/optimizer/" + name, settings.pairs(pairs),
                 [settings, row](benchmark::State& state) { measure_optimizer(state, settings, row); });
  };
  constexpr int64_t kFloatsOf16Mb = int64_t{4} << 20;
  add("adam/4x16mb", kSlowPairs, {4, kFloatsOf16Mb, adam, false, 7});
  add("clip_adam/4x16mb", kSlowPairs, {4, kFloatsOf16Mb, adam, true, 8});
  add("sgd_momentum/4x16mb", kSlowPairs, {4, kFloatsOf16Mb, sgd, false, 5});
  add("adam/5000x64", kSlowPairs, {5000, 64, adam});
  add("clip_adam/5000x64", kSlowPairs, {5000, 64, adam, true});
  add("sgd_momentum/5000x64", kSlowPairs, {5000, 64, sgd});
  register_row(settings, "step/checkpoint", settings.pairs(kSlowPairs),
               [settings](benchmark::State& state) { measure_checkpoint(state, settings); });
  for (const AotModel& model : aot_models()) {
    register_row(settings, "step/" + model.name, settings.pairs(kSlowPairs),
                 [settings, model](benchmark::State& state) { measure_step(state, settings, model.build); });
    register_row(settings, "train_step/" + model.name, settings.pairs(kSlowPairs),
                 [settings, model](benchmark::State& state) { measure_train_step(state, settings, model.build); });
  }
}

}  // namespace hindcast::bench
