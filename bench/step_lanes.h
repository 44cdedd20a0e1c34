#pragma once

#include <ATen/core/Tensor.h>
#include <benchmark/benchmark.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/byte_floor.h"
#include "bench/settings.h"
#include "bench/step_models.h"

// Shared by the rows of training steps: lanes of steps in turn, stock's first and hindcast's second.

namespace hindcast::bench {

using torch::optim::Optimizer;

inline constexpr double kRate = 1e-6;  // a benchmark's thousands of steps hardly change the numbers

std::shared_ptr<Optimizer> adam(const Tensors& leaves);

struct StepLane {
  std::function<void()> run;
  std::vector<double> us = {};

  /// Appends the mean microseconds of some steps.
  void run_block(int steps);
};

/// Runs the lanes by turns and sets the counters of stock and hindcast.
void run_rounds(benchmark::State& state, const Settings& settings, const std::vector<StepLane*>& lanes, const ByteFloor* floor = nullptr);

/// A lane's step and its optimizer, for the comparison of losses.
struct CheckedStep {
  std::string name;
  std::function<at::Tensor()> run;
  std::shared_ptr<Optimizer> optimizer;
};

/// The hand-written function as the third lane of a row.
class ByHand {
 public:
  /// Takes the current parameters.
  ByHand(const StepModel& model, const AotWork& work);

  /// Null if this machine has no such lane.
  StepLane* lane() { return function_ == nullptr ? nullptr : &lane_; }

  /// Empty if the first losses at a usual rate are the same in all steps and by hand; else a sentence for SkipWithError. Restores the
  /// parameters.
  std::string differing_losses(const std::vector<CheckedStep>& steps);

  /// The counters of the row, or its label if there is no lane.
  void report(benchmark::State& state, const StepLane& ours) const;

 private:
  void load();
  std::vector<double> losses();

  const bool is_wanted_;
  const HandWritten* function_;
  const AotWork& work_;
  StepLane lane_;
};

}  // namespace hindcast::bench
