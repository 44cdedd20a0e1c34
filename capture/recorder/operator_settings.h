#pragma once
// LibTorch's settings that operators read when they run: the default dtype, determinism, precision, libraries. A program runs its operators
// with the settings of the call, so a function that changes one of them between its operators cannot be a program. Settings that decide
// which operators are called (autocast, the backends of attention) are not included: they have taken effect in the recorded operators.

#include "base/check.h"

#include <cstdint>

namespace hindcast::capture {

class PackedBits {
 public:
  /// Appends the lowest `bits` of the value, which may be negative.
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

/// Settings of the CPU, determinism, and the default dtype.
uint64_t operator_settings();
constexpr int kBitsOfOperatorSettings = 17;

/// Settings of an accelerator: TF32, cuDNN, reduced precision, the preferred libraries.
uint64_t accelerator_settings();
constexpr int kBitsOfAcceleratorSettings = 34;

/// torch.set_flush_denormal(True). In no key, since a program's kernels run in the mode of their thread too. The check multiplies a
/// denormal, which is slow on some processors.
bool flushes_denormals();

}  // namespace hindcast::capture
