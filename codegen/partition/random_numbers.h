#pragma once
// Rewrites random ops so that a program's kernels draw the numbers themselves.
//
// LibTorch's CPU generator draws one number at a time, on one thread, which takes longer than the rest of a kernel; and its results must be
// saved for the backward. Here an op draws one number from it as a seed, and is then a pure function of the seed
// (codegen/fuse/random_ops.h): min_cut saves the seed, and the backward draws the same numbers again.
//
// Recognised are bernoulli and bernoulli_ with a single probability, and with them dropout: a chain of these becomes one op,
//
//   noise = empty_like(x).bernoulli_(1 - p).div_(1 - p)    noise = philox_bernoulli(seed, rows, columns, 1 - p, 1 / (1 - p))
//
// and the form that dropout has on other devices; its mask is then not computed at all:
//
//   y, mask = native_dropout(x, p, True)                   y = philox_dropout(x, seed, rows, columns, 1 - p, 1 / (1 - p))
//   gx = native_dropout_backward(gy, mask, 1 / (1 - p))    gx = philox_dropout(gy, seed, rows, columns, 1 - p, 1 / (1 - p))

#include "capture/function/joint.h"

namespace hindcast::codegen {

/// The joint program with its forward's random ops rewritten. Value ids do not change.
capture::Joint draw_in_kernels(const capture::Joint& joint);

}  // namespace hindcast::codegen
