#pragma once
// Passes integers to a compiled function as the sizes of empty tensors, so that integers which change become symbols.

#include "cache/key.h"

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <span>
#include <vector>

namespace hindcast::engine {

class CarriedIntegers {
 public:
  explicit CarriedIntegers(std::span<const int64_t> integers) : integers_(integers) {}

  /// Appends the empty tensors.
  void append_carriers(std::vector<at::Tensor>& inputs) const;
  /// Appends the integers that cannot be sizes: negative dims, "to the end" of slices.
  void append_facts(cache::KeyBytes& facts) const;
  /// The integers, read back from the carriers or from their stand-ins in a trace.
  std::vector<c10::SymInt> read(std::span<const at::Tensor> carriers) const;

 private:
  std::span<const int64_t> integers_;
};

}  // namespace hindcast::engine
