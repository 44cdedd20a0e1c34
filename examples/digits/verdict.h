#pragma once

#include <string>
#include <vector>

#include "examples/digits/train.h"

namespace digits {

/// The demo's promises for each model.
constexpr double kLeastAccuracy = 0.95;
constexpr std::uint64_t kMostGraphs = 2;
/// GradientDifference::largest under compilers::fused(), which rounds differently; under compilers::eager() it is 0.
constexpr double kLargestDifference = 1e-4;
constexpr double kLeastHitRate = 0.90;

/// Hits among the backwards that hindcast looked up, 0 to 1; 0 when there were none.
double hit_rate(const ::hindcast::Stats& stats);

/// Which promises an outcome broke, each as a sentence. A failure makes the program fail; a warning does not.
struct Verdict {
  std::vector<std::string> failures;
  std::vector<std::string> warnings;
};

Verdict judge(const std::vector<Outcome>& outcomes, double allowed_difference);

}  // namespace digits
