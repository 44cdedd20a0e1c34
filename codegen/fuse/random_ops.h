#pragma once
// Ops of hindcast's own that draw random numbers as kernels do, so that a program that runs through ATen has the very same ones.
//
//   hindcast::philox_seed() -> Tensor                     one number of LibTorch's generator: what manual_seed reproduces
//   hindcast::counters(SymInt[] size) -> Tensor           0, 1, 2, ... in int32
//   hindcast::philox_bernoulli(Tensor seed, Tensor rows, Tensor columns, float p, float value, ScalarType dtype) -> Tensor
//                                                         `value` with probability p, else 0; for each row and column. A pure function
//
// An element's number depends on its row and its column, as they are counted by two small tensors: these are broadcast, as a bias is. So
// every kernel that reads a bias can draw random numbers, in whatever order it goes over its elements.

#include <ATen/core/dispatch/Dispatcher.h>

namespace hindcast::codegen {

struct RandomOps {
  c10::OperatorHandle seed, counters, bernoulli;
};
/// Registered with LibTorch at the first call.
const RandomOps& random_ops();

/// How many of 2^24 numbers are kept.
double bernoulli_threshold(double p);

}  // namespace hindcast::codegen
