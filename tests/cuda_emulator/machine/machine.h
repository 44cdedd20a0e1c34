#pragma once
// The emulator in a card's place: kernels that the backend for CUDA writes run on CPU tensors, and an error of a kernel is an exception.

#include "codegen/cuda/machine.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hindcast::tests::cuda {

/// Of this process. Made on first use. Leaves the texts of all kernels in the folder that HINDCAST_KEPT_TEXTS names. With
/// HINDCAST_ONLY_TEXTS=1 it runs none of them: results are garbage, and tests fail, in a hundredth of the time.
const codegen::cuda::Machine& emulator_machine();

/// By all launches so far.
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

/// While it lives, kernels that are loaded have their texts edited first: those on disk stay as they are.
class WithEdit {
 public:
  explicit WithEdit(std::function<std::string(std::string)> edit);
  ~WithEdit();
  WithEdit(const WithEdit&) = delete;
  WithEdit& operator=(const WithEdit&) = delete;
};

/// While alive, fusion reckons with a card. Else with the CPU, whose suites say which groups there are.
class CostsOfACard {
 public:
  CostsOfACard();
  ~CostsOfACard();
  CostsOfACard(const CostsOfACard&) = delete;
  CostsOfACard& operator=(const CostsOfACard&) = delete;
};

/// Names of the kernels that were launched since this was asked last, in order.
std::vector<std::string> take_launched();

}  // namespace hindcast::tests::cuda
