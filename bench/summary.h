#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hindcast::bench {

/// Order statistics of a set of samples: a preempted sample moves none of them far.
struct Summary {
  double min = 0;
  double quartile1 = 0;
  double median = 0;
  double quartile3 = 0;

  double iqr() const { return quartile3 - quartile1; }
  double spread() const { return median == 0 ? 0 : iqr() / median; }
};

inline Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double share) {
    const double at = share * static_cast<double>(samples.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (at - static_cast<double>(below)) * (samples[above] - samples[below]);
  };
  return {samples.front(), quantile(0.25), quantile(0.5), quantile(0.75)};
}

}  // namespace hindcast::bench
