#pragma once
// LibTorch's settings that operators ask for when they run: the default dtype, determinism, precision, libraries. A program runs its
// operators with the settings of the call, so a function that changes one for some of its operators is no program. Settings that decide which
// operators are called (autocast, the backends of attention) are not among these: what is recorded has asked for them.

#include "base/check.h"

#include <cstdint>

namespace hindcast::capture {

class PackedBits {
 public:
  /// The lowest `bits` of the value, which may be negative.
  template <class Value>
  void add(Value value, int bits) {
    HC_CHECK(used_ + bits <= 64);
    word_ |= (static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1)) << used_;
    used_ += bits;
  }
  uint64_t word() const { return word_; }

 private:
  uint64_t word_ = 0;
  int used_ = 0;
};

/// Those of the CPU, determinism, and the default dtype.
uint64_t kernel_settings();
constexpr int kBitsOfKernelSettings = 18;

/// Those of an accelerator: TF32, cuDNN, reduced precision, the preferred libraries.
uint64_t accelerator_settings();
constexpr int kBitsOfAcceleratorSettings = 34;

}  // namespace hindcast::capture
