// The whole training step: forward, backward, clipping and the optimizer. Eager's side is LibTorch's own program; ours has the forward and
// backward ahead of time, under a guard, and compiled_step().
//
// `second/...`: losses that contain gradients: unchanged under a guard, in one call, and with the gradient of a compiled function.
// `train_step/...`: the same steps in one call. `by_hand_us`: a hand-written function of the same step (by_hand.h), as a third lane;
// `of_by_hand`: ours over it.
// `step/optimizer/...`: the optimizer's step alone, on fixed gradients. `floor_us`: the step's reads and writes of memory as a copy.
// `step/checkpoint`: small blocks whose forwards are recomputed in the backward, in both lanes; `us_of_one`: the extra time per checkpoint.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "bench/byte_floor.h"
#include "bench/harness.h"
#include "bench/plan_floor.h"
#include "bench/step_lanes.h"
#include "bench/suites.h"
#include "hindcast/aot_function.h"
#include "hindcast/checkpoint.h"
#include "hindcast/compiled_step.h"
#include "hindcast/train_step.h"

namespace hindcast::bench {
namespace {

using MakeOptimizer = std::function<std::shared_ptr<Optimizer>(const Tensors& leaves)>;

constexpr double kMaxNorm = 1.0;  // of rows step/optimizer/...

std::shared_ptr<Optimizer> sgd(const Tensors& leaves) {
  return std::make_shared<torch::optim::SGD>(leaves, torch::optim::SGDOptions(kRate).momentum(0.9));
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
  run_rounds(state, settings, {&stock, &ours}, floor ? &*floor : nullptr);
  if (step.counts().original != 0) state.SkipWithError(("not by kernels: " + step.counts().why_original).c_str());
}

/// LibTorch's own step.
at::Tensor stock_step(const StepModel& model, const AotWork& work, Optimizer& optimizer) {
  optimizer.zero_grad();
  const at::Tensor loss = work.function(work.arguments);
  loss.backward(work.incoming);
  torch::nn::utils::clip_grad_norm_(work.leaves, model.max_norm);
  optimizer.step();
  return loss;
}

/// Runs the lanes of a row in turn, and reports them. False: it failed and nothing was timed.
bool run_steps(benchmark::State& state, const Settings& settings, const StepModel& model, const AotWork& work, const CheckedStep& of_ours,
               StepLane& ours) {
  const auto of_stock = adam(work.leaves);
  const CheckedStep checked{"stock", [&] { return stock_step(model, work, *of_stock); }, of_stock};
  StepLane stock{[&] { checked.run(); }};
  ByHand by_hand(model, work);
  if (const std::string error = by_hand.differing_losses({checked, of_ours}); !error.empty()) {
    state.SkipWithError(error.c_str());
    return false;
  }
  std::vector<StepLane*> lanes = {&stock, &ours};
  if (by_hand.lane() != nullptr) lanes.push_back(by_hand.lane());
  run_rounds(state, settings, lanes);
  by_hand.report(state, ours);
  if (settings.report) std::cerr << report();
  return true;
}

/// As in a new process, so that no row depends on earlier ones.
AotWork build_anew(const StepModel& model) {
  reset();
  trim();
  at::manual_seed(1);
  return model.build();
}

void measure_step(benchmark::State& state, const Settings& settings, const StepModel& model) {
  const AotWork work = build_anew(model);
  const Compiler compiler = settings.fused ? compilers::fused() : compilers::eager();
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compiler;
  options.async = false;
  Options guard_options;
  guard_options.compiler = compiler;
  guard_options.async = false;
  const AotFunction<std::function<at::Tensor(const Tensors&)>> compiled(work.function, options);
  const auto optimizer = adam(work.leaves);
  auto update = compiled_step(*optimizer, ClipGradNorm{model.max_norm});
  const CheckedStep checked{"hindcast",
                            [&] {
                              const auto guard = enable(guard_options);
                              optimizer->zero_grad();
                              const at::Tensor loss = compiled(work.arguments);
                              loss.backward(work.incoming);
                              update();
                              return loss;
                            },
                            optimizer};
  StepLane ours{[&] { checked.run(); }};
  if (!run_steps(state, settings, model, work, checked, ours)) return;
  constexpr double kPassesOfClippedAdam = 8;
  double bytes = 0;
  for (const at::Tensor& leaf : work.leaves) bytes += kPassesOfClippedAdam * static_cast<double>(leaf.nbytes());
  if (settings.fused) report_floor(state, ours.run, summarize(ours.us).median, bytes);
  if (update.counts().original != 0) state.SkipWithError(("not by kernels: " + update.counts().why_original).c_str());
}

// The same step in one call.
void measure_train_step(benchmark::State& state, const Settings& settings, const StepModel& model) {
  const AotWork work = build_anew(model);
  TrainStepOptions options;
  options.clip = ClipGradNorm{model.max_norm};
  options.aot.fw_compiler = options.aot.bw_compiler = settings.fused ? compilers::fused() : compilers::eager();
  options.aot.async = false;
  const auto optimizer = adam(work.leaves);
  auto step = train_step(*optimizer, work.function, options);
  const CheckedStep checked{"hindcast", [&] { return step(work.arguments); }, optimizer};
  StepLane ours{[&] { checked.run(); }};
  if (!run_steps(state, settings, model, work, checked, ours)) return;
  const TrainStepStats stats = step.stats();
  if (stats.eager != 0 || stats.updates.original != 0) state.SkipWithError("some of it was no program");
}

// LibTorch's own step with its optimizer, under a guard.
void measure_unchanged_step(benchmark::State& state, const Settings& settings, const StepModel& model) {
  const AotWork work = build_anew(model);
  Options options;
  options.compiler = settings.fused ? compilers::fused() : compilers::eager();
  options.async = false;
  const auto optimizer = adam(work.leaves);
  const CheckedStep checked{"hindcast",
                            [&] {
                              const auto guard = enable(options);
                              return stock_step(model, work, *optimizer);
                            },
                            optimizer};
  StepLane ours{[&] { checked.run(); }};
  if (!run_steps(state, settings, model, work, checked, ours)) return;
  const auto while_traced = stats().fallbacks_by_reason;
  ours.run();
  if (stats().fallbacks_by_reason != while_traced) state.SkipWithError("some of it ran on the stock engine");
}

// The slope of a compiled critic, computed and differentiated outside of it.
void measure_through_function(benchmark::State& state, const Settings& settings) {
  reset();
  const std::vector<int64_t> widths = {64, 128, 128, 1};
  Tensors weights;
  for (size_t i = 1; i < widths.size(); ++i) weights.push_back((at::randn({widths[i], widths[i - 1]}) / 8).requires_grad_());
  const auto critic = [&](const at::Tensor& x) { return x.mm(weights[0].t()).tanh().mm(weights[1].t()).tanh().mm(weights[2].t()); };
  AotOptions options;
  options.fw_compiler = options.bw_compiler = settings.fused ? compilers::fused() : compilers::eager();
  options.async = false;
  const auto compiled = aot_function(critic, options);
  const at::Tensor x = at::randn({64, 64}).requires_grad_();
  const auto penalty = [&](const auto& called) {
    const at::Tensor slope = torch::autograd::grad({called(x).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    torch::autograd::grad({(slope.norm(2, 1) - 1).square().mean()}, weights);
  };
  StepLane stock{[&] { penalty(critic); }};
  StepLane ours{[&] { penalty(compiled); }};
  run_rounds(state, settings, {&stock, &ours});
  if (compiled.stats().eager != 0) state.SkipWithError("the function ran eagerly");
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
  run_rounds(state, settings, {&stock, &ours});
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
  register_row(settings, "second/through_function/64-128-128-1/b64", settings.pairs(kSlowPairs),
               [settings](benchmark::State& state) { measure_through_function(state, settings); });
  for (const StepModel& model : second_order_models()) {
    register_row(settings, "second/enable/" + model.name, settings.pairs(kSlowPairs),
                 [settings, model](benchmark::State& state) { measure_unchanged_step(state, settings, model); });
    register_row(settings, "second/train_step/" + model.name, settings.pairs(kSlowPairs),
                 [settings, model](benchmark::State& state) { measure_train_step(state, settings, model); });
  }
  for (const StepModel& model : step_models()) {
    register_row(settings, "step/" + model.name, settings.pairs(kSlowPairs),
                 [settings, model](benchmark::State& state) { measure_step(state, settings, model); });
    register_row(settings, "train_step/" + model.name, settings.pairs(kSlowPairs),
                 [settings, model](benchmark::State& state) { measure_train_step(state, settings, model); });
  }
}

}  // namespace hindcast::bench
