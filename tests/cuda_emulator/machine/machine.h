#pragma once
// The emulator in place of a card: the kernels of the backend for CUDA run on CPU tensors, and an error in a kernel is an exception.

#include "codegen/cuda/machine.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hindcast::tests::cuda {

/// The process's emulator, created on first use. Writes the texts of all kernels to the folder that HINDCAST_KEPT_TEXTS names. With
/// HINDCAST_ONLY_TEXTS=1 it runs none of them: results are garbage, and tests fail, in a hundredth of the time.
const codegen::cuda::Machine& emulator_machine();

/// Sums over all launches so far.
struct LaunchCounts {
  uint64_t launches = 0, threads = 0;
};
LaunchCounts launch_counts();
/// While it lives, the emulated card has these limits.
class WithLimits {
 public:
  explicit WithLimits(const codegen::cuda::Limits& limits);
  ~WithLimits();
  WithLimits(const WithLimits&) = delete;
  WithLimits& operator=(const WithLimits&) = delete;

 private:
  const codegen::cuda::Limits before_;
};

/// While it lives, the texts of kernels are edited as they are loaded; those on disk stay unchanged.
class WithEdit {
 public:
  explicit WithEdit(std::function<std::string(std::string)> edit);
  ~WithEdit();
  WithEdit(const WithEdit&) = delete;
  WithEdit& operator=(const WithEdit&) = delete;
};

/// While it lives, fusion uses a card's costs; otherwise the CPU's, whose suites check the groups.
class CostsOfACard {
 public:
  CostsOfACard();
  ~CostsOfACard();
  CostsOfACard(const CostsOfACard&) = delete;
  CostsOfACard& operator=(const CostsOfACard&) = delete;
};

/// Names of the kernels launched since the last call, in order.
std::vector<std::string> take_launched();

}  // namespace hindcast::tests::cuda
