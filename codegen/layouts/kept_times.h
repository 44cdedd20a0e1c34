#pragma once
// Stores measured times in the folder of compiled kernels, so that the next process on this machine need not measure again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace hindcast::codegen {

/// LibTorch's current settings that times depend on.
std::vector<int64_t> settings_of_times();

struct KeptTimes {
  std::vector<double> times;
  int measurements = 1;  // how many measurements they are the minimum of
  int processes = 1;     // how many processes have read them
};

/// The `count` times stored for `what` and these sizes, for this CPU model, this release of LibTorch and its current settings. nullopt if
/// no times are stored for them, or if the folder cannot be used.
std::optional<KeptTimes> kept_times(std::string_view what, const std::vector<int64_t>& sizes, size_t count);
/// Stores times. Does nothing if the folder cannot be written to.
void keep_times(std::string_view what, const std::vector<int64_t>& sizes, const KeptTimes& times);

}  // namespace hindcast::codegen
