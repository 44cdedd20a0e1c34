#pragma once
// AccumulateGrad: a gradient into a leaf's `.grad`, through LibTorch's own template, so that stealing, cloning to the
// leaf's layout, adding in place and sparse gradients are its own. Only what it would give back unchanged does not go there.

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <mutex>

namespace hindcast::hooks {

/// What AccumulateGrad::apply does. `gradient` may be undefined. Pass the last reference by move where there is one: only
/// then can the leaf take the tensor itself; a copy that the caller keeps for post hooks is allowed for.
/// `mutex` is the node's. Post-accumulate hooks run under it, as in the stock engine. Throws what they throw.
void accumulate_grad(torch::autograd::AccumulateGrad& node, std::mutex& mutex, at::Tensor&& gradient, bool has_post_hooks);

}  // namespace hindcast::hooks
