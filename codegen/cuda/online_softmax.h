#pragma once
// Online softmax: computes both reductions of a softmax in one pass over the row (Milakov and Gimelshein, 2018).

#include "codegen/fuse/body.h"

namespace hindcast::codegen::cuda {

/// Rewrites each sum of exp(x - from) to a pair that one pass computes: x's maximum and the sum of exp(x - maximum)
/// (Reduction::Kind::Largest and Powers). `from` is the maximum, or what a logsumexp uses in its place if the maximum is infinite. Indices
/// of loads, scalars and stores do not change.
Body with_online_softmax(const Body& body);

}  // namespace hindcast::codegen::cuda
