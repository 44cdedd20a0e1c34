#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"

/// The question of all differential tests: does hindcast give the same bits as the stock engine? A program builds its leaves and its loss
/// from a seed, calls `backward()` and returns what must be equal: the loss, the gradients, whatever its hooks recorded. It runs twice from
/// the same seed, with and without a guard, and must build everything anew each time.
namespace hindcast::tests {

using SeededProgram = std::function<std::vector<at::Tensor>(uint64_t seed)>;

/// The results of a program. `error` is the exception's text without its backtrace, empty if nothing was thrown; a program whose gradients
/// are to be compared after an exception catches it itself.
struct Outcome {
  std::vector<at::Tensor> tensors;
  std::string error;
};

Outcome run_stock(const SeededProgram& program, uint64_t seed);
Outcome run_hindcast(const SeededProgram& program, uint64_t seed, const Options& options = {});

/// Fails the current test at the first tensor that differs. Returns whether all are equal.
bool expect_equal(const Outcome& stock, const Outcome& hindcast);

/// Runs the program once per seed on both engines: the first is a miss, the later ones are hits or new sizes, depending on how the program
/// uses its seed.
bool expect_same_grads(const SeededProgram& program, const std::vector<uint64_t>& seeds = {1, 2, 3}, const Options& options = {});

/// Same dtype, layout, sizes, strides, conj, neg and zero-tensor bits, and the same bits in every element. -0 differs from 0;
/// every NaN equals every NaN. Two undefined tensors are equal. Sparse and mkldnn tensors compare as dense copies.
bool bit_equal(const at::Tensor& a, const at::Tensor& b);

/// The first difference between the two, as one line; empty if they are bit-equal.
std::string first_difference(const at::Tensor& stock, const at::Tensor& hindcast);

}  // namespace hindcast::tests
