#pragma once
// hindcast's own ops that draw random numbers in the way kernels do, so that a program that runs through ATen draws the same numbers.
//
//   hindcast::philox_seed(Device device) -> Tensor        one number of LibTorch's generator of the device: what manual_seed reproduces
//   hindcast::counters(SymInt[] size, Device device) -> Tensor
//                                                         0, 1, 2, ... in int32
//   hindcast::philox_bernoulli(Tensor seed, Tensor rows, Tensor columns, float p, float value, ScalarType dtype) -> Tensor
//                                                         `value` with probability p, else 0; for each row and column. A pure function
//   hindcast::philox_dropout(Tensor self, Tensor seed, Tensor rows, Tensor columns, float p, float value) -> Tensor
//                                                         self times philox_bernoulli, computed in float32 or wider
//
// An element's random number depends on its row and column index. Two small tensors hold these indices and are broadcast like a bias, so
// any kernel that can read a bias can draw random numbers, in whatever order it visits its elements.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace hindcast::codegen {

struct RandomOps {
  c10::OperatorHandle seed, counters, bernoulli, dropout;
};
/// The ops, registered with LibTorch at the first call.
const RandomOps& random_ops();

/// Sets how seeds are drawn on devices other than the CPU. By default LibTorch's random_() draws them.
void draw_seeds_by(at::Tensor (*draw)(c10::Device device));
/// Sets how counters are made on devices other than the CPU. By default they are made anew in each call.
void make_counters_by(at::Tensor (*make)(at::IntArrayRef size, c10::Device device));

/// philox_bernoulli computed by ATen's ops, for any device.
at::Tensor philox_bernoulli_by_ops(const at::Tensor& seed, const at::Tensor& rows, const at::Tensor& columns, double p, double value,
                                   at::ScalarType dtype);

/// How many of the 2^24 possible numbers are kept with probability p.
double bernoulli_threshold(double p);

}  // namespace hindcast::codegen
