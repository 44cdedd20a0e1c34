#include "bench/step_lanes.h"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "bench/clock.h"
#include "bench/harness.h"

namespace hindcast::bench {
namespace {

constexpr int kLeastSteps = 2;

constexpr int kChecked = 20;
constexpr double kCheckedRate = 1e-3, kTolerance = 1e-4;

void set_rate(Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

void copy_to(const HandWritten::Input& input, const at::Tensor& from) {
  const at::Tensor values = from.detach().to(at::kFloat).contiguous();
  if (values.numel() != input.count) throw std::logic_error("a step by hand is of other sizes than its row");
  std::memcpy(input.values, values.const_data_ptr<float>(), static_cast<size_t>(input.count) * sizeof(float));
}

/// The losses of the first steps from the current leaves, which are then restored.
std::vector<double> first_losses(const CheckedStep& step, const Tensors& leaves) {
  Tensors first;
  for (const at::Tensor& leaf : leaves) first.push_back(leaf.detach().clone());
  set_rate(*step.optimizer, kCheckedRate);
  std::vector<double> losses;
  for (int i = 0; i < kChecked; ++i) losses.push_back(step.run().item<double>());
  set_rate(*step.optimizer, kRate);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i].copy_(first[i]);
  return losses;
}

const HandWritten* on_this_machine(const StepModel& model) {
#ifdef __x86_64__
  // Checked before a step runs, in code for any processor. by_hand() returns a pointer to a constant.
  const HandWritten* const step = model.by_hand == nullptr ? nullptr : model.by_hand();
  if (step != nullptr && step->vectors == Vectors::Avx512 && __builtin_cpu_supports("avx512f")) return step;
  if (step != nullptr && step->vectors == Vectors::Avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return step;
#endif
  return nullptr;
}

}  // namespace

std::shared_ptr<Optimizer> adam(const Tensors& leaves) {
  return std::make_shared<torch::optim::Adam>(leaves, torch::optim::AdamOptions(kRate));
}

void StepLane::run_block(int steps) {
  // The first one is not timed. It would pay for effects of another lane: cold caches, and small pieces of memory that malloc joins at the
  // next large allocation; after thousands of freed temporaries that takes several times as long as a compiled update.
  run();
  const double start = now_us();
  for (int i = 0; i < steps; ++i) run();
  us.push_back((now_us() - start) / steps);
}

void run_rounds(benchmark::State& state, const Settings& settings, const std::vector<StepLane*>& lanes, const ByteFloor* floor) {
  for (int i = 0; i < 3; ++i) {
    for (StepLane* lane : lanes) lane->run();
  }
  StepLane &stock = *lanes[0], &ours = *lanes[1];
  stock.run_block(1);
  const int steps = settings.quick ? 1 : std::max(kLeastSteps, backwards_per_block(settings, stock.us.back()));
  stock.us.clear();
  StepLane copy{[floor] { floor->copy(); }};
  std::vector<StepLane*> order = lanes;
  if (floor != nullptr) order.push_back(&copy);
  for (auto _ : state) {
    for (StepLane* lane : order) lane->run_block(steps);
    std::reverse(order.begin(), order.end());
    state.SetIterationTime(ours.us.back() * 1e-6);
  }
  auto& counters = state.counters;
  counters["stock_us"] = summarize(stock.us).median;
  counters["hindcast_us"] = summarize(ours.us).median;
  const Summary ratio = paired_quotients(stock.us, ours.us);
  counters["ratio"] = ratio.median;
  counters["spread"] = ratio.spread();
  if (floor != nullptr) {
    counters["floor_us"] = summarize(copy.us).median;
    counters["floor_share"] = paired_quotients(copy.us, ours.us).median;
  }
}

ByHand::ByHand(const StepModel& model, const AotWork& work)
    : is_wanted_(model.by_hand != nullptr), function_(on_this_machine(model)), work_(work) {
  if (function_ == nullptr) return;
  load();
  lane_.run = [function = function_] { function->step(static_cast<float>(kRate)); };
}

void ByHand::load() {
  Tensors values = work_.leaves;
  values.insert(values.end(), work_.data.begin(), work_.data.end());
  if (values.size() != static_cast<size_t>(function_->input_count))
    throw std::logic_error("a step by hand reads other tensors than its row");
  for (size_t i = 0; i < values.size(); ++i) copy_to(function_->inputs[i], values[i]);
  function_->start();
}

std::vector<double> ByHand::losses() {
  load();
  std::vector<double> losses;
  for (int i = 0; i < kChecked; ++i) losses.push_back(function_->step(static_cast<float>(kCheckedRate)));
  load();
  return losses;
}

std::string ByHand::differing_losses(const std::vector<CheckedStep>& steps) {
  if (function_ == nullptr) return {};
  const std::vector<double> by_hand = losses();
  for (const CheckedStep& step : steps) {
    const std::vector<double> seen = first_losses(step, work_.leaves);
    for (size_t i = 0; i < seen.size(); ++i) {
      if (std::abs(seen[i] - by_hand[i]) <= kTolerance * std::abs(seen[i])) continue;
      return "loss " + std::to_string(i) + " by hand is " + std::to_string(by_hand[i]) + ", and " + step.name + "'s " +
             std::to_string(seen[i]);
    }
  }
  return {};
}

void ByHand::report(benchmark::State& state, const StepLane& ours) const {
  if (!is_wanted_) return;
  if (function_ == nullptr) {
    state.SetLabel("by_hand: no lane for this processor");
    return;
  }
  state.counters["by_hand_us"] = summarize(lane_.us).median;
  state.counters["of_by_hand"] = paired_quotients(ours.us, lane_.us).median;
}

}  // namespace hindcast::bench
