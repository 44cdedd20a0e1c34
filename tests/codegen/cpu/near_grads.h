#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"

/// Fused kernels round at other places than ATen, so neither result is exact: the reference is the program in float64 on the stock engine.
namespace hindcast::tests {

/// Creates its leaves with `options` from the current seed, calls backward() and returns the tensors to compare.
using TypedProgram = std::function<std::vector<at::Tensor>(at::TensorOptions options)>;

/// compilers::fused(), compiled before backward() returns.
Options fused_options();

/// A leaf of normal values, the same for all types.
at::Tensor near_leaf(at::IntArrayRef sizes, at::TensorOptions options);

struct NearGrads {
  uint64_t fused_graphs = 1;
  int steps = 3;
  uint64_t misses = 1;
  /// In float64 the reference is the stock result itself, which is off by more than 4 units after long sums or cancellation.
  int units_in_double = 4;
};

/// Runs `steps` steps of the program with both engines in float32 and float64. Each result must have the stock result's dtype, sizes and
/// strides, and may be twice as far from the reference as that, plus 4 units in the last place of its tensor's largest value. At least
/// `fused_graphs` graphs must have run with kernels, and steps after the first `misses` must be hits.
void expect_near_grads(const TypedProgram& program, NearGrads expected = {});

}  // namespace hindcast::tests
