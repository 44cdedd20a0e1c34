#pragma once

#include <cstdint>
#include <string>

#include "examples/digits/data.h"
#include "examples/digits/models.h"
#include "hindcast/hindcast.h"

namespace digits {

struct Schedule {
  std::int64_t epochs;
  std::int64_t batch_size;
  std::uint64_t seed;
};

/// What one backward costs, in microseconds.
struct BackwardTime {
  double median_us;
  double first_us;  ///< the one in which hindcast captures
};

/// The distance between the gradients of two equal models, over all steps.
struct GradientDifference {
  double largest = 0;  ///< share of the largest gradient of that step; infinite if only one side has a gradient or a NaN
  std::string where;   ///< "step 3, layers.0.weight"; empty if no gradient differs
};

/// One model trained by both engines.
struct Outcome {
  std::string name;
  std::int64_t epochs;
  std::int64_t default_epochs;
  std::int64_t steps;
  double accuracy;  ///< of the model trained with hindcast, on the held-out images, 0 to 1
  GradientDifference gradients;
  BackwardTime stock;
  BackwardTime hindcast;
  ::hindcast::Stats stats;  ///< of this model's backwards only
};

/// Trains a model with hindcast and lets the stock engine compute the gradients of every step as well, on a twin with the same weights.
///
/// At every step both have the same weights and get the same batch and dropout masks; their gradients are compared before the optimiser
/// updates hindcast's model, whose weights its twin then copies. Each backward is timed separately; the order alternates, so that neither
/// always finds the caches warm.
Outcome train(const Recipe& recipe, const Digits& digits, const Schedule& schedule, const ::hindcast::Compiler& compiler);

}  // namespace digits
