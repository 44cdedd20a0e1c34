#pragma once
// What was measured on this machine, in the folder of compiled kernels: the next process need not measure it again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hindcast::codegen {

/// LibTorch's, now, that times depend on.
std::vector<int64_t> settings_of_times();

struct KeptTimes {
  std::vector<double> times;
  int measurements = 1;  // that they are the least of
  int processes = 1;     // that have asked for them
};

/// So many times as were kept for `what` and these sizes, on a CPU of this model, with this release of LibTorch and its settings as they are
/// now. nullopt: none were, or the folder cannot be used.
std::optional<KeptTimes> kept_times(std::string_view what, const std::vector<int64_t>& sizes, size_t count);
/// A folder that cannot be written to costs nothing else.
void keep_times(std::string_view what, const std::vector<int64_t>& sizes, const KeptTimes& times);

}  // namespace hindcast::codegen
