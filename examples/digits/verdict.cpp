#include "examples/digits/verdict.h"

#include <fmt/format.h>

namespace digits {
namespace {

void judge_gradients(const Outcome& outcome, double allowed, Verdict& verdict) {
  if (outcome.gradients.largest <= allowed) return;
  verdict.failures.push_back(
      fmt::format("{}: gradients differ from the stock engine's by up to {:.3g} of the largest, expected at most {:.3g}; at {}",
                  outcome.name, outcome.gradients.largest, allowed, outcome.gradients.where));
}

void judge_accuracy(const Outcome& outcome, Verdict& verdict) {
  if (outcome.accuracy > kLeastAccuracy) return;
  std::string text = fmt::format("{}: {:.1f}% of the held-out digits are right, expected more than {:.0f}%", outcome.name,
                                 100 * outcome.accuracy, 100 * kLeastAccuracy);
  if (outcome.epochs >= outcome.default_epochs) {
    verdict.failures.push_back(std::move(text));
  } else {
    verdict.warnings.push_back(fmt::format("{} after {} epochs; it trained for {}", text, outcome.default_epochs, outcome.epochs));
  }
}

void judge_takeover(const Outcome& outcome, Verdict& verdict) {
  const ::hindcast::Stats& stats = outcome.stats;
  if (stats.backwards < static_cast<std::uint64_t>(outcome.steps)) {
    verdict.warnings.push_back(
        fmt::format("{}: hindcast ran {} of {} backwards; the stock engine ran the others", outcome.name, stats.backwards, outcome.steps));
  }
  if (stats.unique_graphs > kMostGraphs) {
    verdict.warnings.push_back(fmt::format("{}: {} graphs captured, expected at most {}", outcome.name, stats.unique_graphs, kMostGraphs));
  }
  if (hit_rate(stats) <= kLeastHitRate) {
    verdict.warnings.push_back(fmt::format("{}: {:.1f}% hits ({} of {}), expected more than {:.0f}%", outcome.name, 100 * hit_rate(stats),
                                           stats.hits, stats.hits + stats.misses, 100 * kLeastHitRate));
  }
}

}  // namespace

double hit_rate(const ::hindcast::Stats& stats) {
  const std::uint64_t looked_up = stats.hits + stats.misses;
  return looked_up == 0 ? 0 : static_cast<double>(stats.hits) / static_cast<double>(looked_up);
}

Verdict judge(const std::vector<Outcome>& outcomes, double allowed_difference) {
  Verdict verdict;
  for (const Outcome& outcome : outcomes) {
    judge_gradients(outcome, allowed_difference, verdict);
    judge_accuracy(outcome, verdict);
    judge_takeover(outcome, verdict);
  }
  return verdict;
}

}  // namespace digits
