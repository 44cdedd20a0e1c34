#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/aot_workloads.h"
#include "bench/by_hand.h"

namespace hindcast::bench {

/// A model of the rows of training steps.
struct StepModel {
  std::string name;
  std::function<AotWork()> build;
  double max_norm = 1.0;                      // gradients are clipped to it
  const HandWritten* (*by_hand)() = nullptr;  // null: the model has no hand-written step
};

/// aot_models(), and small ones whose steps are also written by hand.
std::vector<StepModel> step_models();

/// Models whose losses contain gradients.
std::vector<StepModel> second_order_models();

}  // namespace hindcast::bench
