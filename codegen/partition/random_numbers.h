#pragma once
// Random numbers that a program's kernels draw themselves.
//
// LibTorch's generator makes one number after the other, on one thread, which takes longer than all else that a kernel does with them; and
// what it has drawn must be saved for the backward. Here one number of it is the seed of all that an op draws, and the op a pure function
// of the seed (codegen/fuse/random_ops.h): min_cut saves the seed, and the backward draws the same again.
//
// Recognised are bernoulli and bernoulli_ of one probability, and so dropout: what follows on each other is one op,
//
//   noise = empty_like(x).bernoulli_(1 - p).div_(1 - p)    noise = philox_bernoulli(seed, rows, columns, 1 - p, 1 / (1 - p))
//
// and the form that dropout has on other devices, whose mask is not made at all:
//
//   y, mask = native_dropout(x, p, True)                   y = philox_dropout(x, seed, rows, columns, 1 - p, 1 / (1 - p))
//   gx = native_dropout_backward(gy, mask, 1 / (1 - p))    gx = philox_dropout(gy, seed, rows, columns, 1 - p, 1 / (1 - p))

#include "capture/function/joint.h"

namespace hindcast::codegen {

/// The same joint program but for the numbers that its forward draws. Its values keep their numbers.
capture::Joint draw_in_kernels(const capture::Joint& joint);

}  // namespace hindcast::codegen
