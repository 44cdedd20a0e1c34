#pragma once
// The two reductions of a softmax in one pass over the row (online softmax; Milakov and Gimelshein, 2018).

#include "codegen/fuse/body.h"

namespace hindcast::codegen::cuda {

/// The same with each sum of exp(x - from) as half of a pair that one pass makes: x's maximum, and the sum of exp(x - maximum)
/// (Reduction::Kind::Largest and Powers). `from` is the maximum, or what a logsumexp takes in its place where it is infinite. Loads, scalars and
/// stores stay where they are.
Body with_online_softmax(const Body& body);

}  // namespace hindcast::codegen::cuda
