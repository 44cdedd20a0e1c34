#pragma once
// AccumulateGrad: accumulates a gradient into a leaf's `.grad` through LibTorch's own template, so that stealing, cloning to the leaf's
// layout, adding in place and sparse gradients behave as in LibTorch. Only a gradient that the template would store unchanged bypasses it.

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <mutex>

namespace hindcast::hooks {

/// What AccumulateGrad::apply does. `gradient` may be undefined. Pass the last reference by move if possible: only then can the leaf steal
/// the tensor; a copy that the caller keeps for post hooks is allowed for. `mutex` is the node's. Post-accumulate hooks run under it, as in
/// the stock engine. Throws what they throw.
void accumulate_grad(torch::autograd::AccumulateGrad& node, std::mutex& mutex, at::Tensor&& gradient, bool has_post_hooks);

}  // namespace hindcast::hooks
