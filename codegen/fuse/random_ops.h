#pragma once
// Ops of hindcast's own that draw random numbers as kernels do, so that a program that runs through ATen has the very same ones.
//
//   hindcast::philox_seed(Device device) -> Tensor        one number of LibTorch's generator of the device: what manual_seed reproduces
//   hindcast::counters(SymInt[] size, Device device) -> Tensor
//                                                         0, 1, 2, ... in int32
//   hindcast::philox_bernoulli(Tensor seed, Tensor rows, Tensor columns, float p, float value, ScalarType dtype) -> Tensor
//                                                         `value` with probability p, else 0; for each row and column. A pure function
//   hindcast::philox_dropout(Tensor self, Tensor seed, Tensor rows, Tensor columns, float p, float value) -> Tensor
//                                                         self times that, in float32 or wider
//
// An element's number depends on its row and its column, as they are counted by two small tensors: these are broadcast, as a bias is. So
// every kernel that reads a bias can draw random numbers, in whatever order it goes over its elements.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace hindcast::codegen {

struct RandomOps {
  c10::OperatorHandle seed, counters, bernoulli, dropout;
};
/// Registered with LibTorch at the first call.
const RandomOps& random_ops();

/// `draw` gives the seeds of devices other than the CPU. Before, LibTorch's random_() does.
void draw_seeds_by(at::Tensor (*draw)(c10::Device device));
/// `make` gives the counters of devices other than the CPU. Before, they are made anew in each call.
void make_counters_by(at::Tensor (*make)(at::IntArrayRef size, c10::Device device));

/// philox_bernoulli by ATen's ops, which all devices have.
at::Tensor philox_bernoulli_by_ops(const at::Tensor& seed, const at::Tensor& rows, const at::Tensor& columns, double p, double value,
                                   at::ScalarType dtype);

/// How many of 2^24 numbers are kept.
double bernoulli_threshold(double p);

}  // namespace hindcast::codegen
