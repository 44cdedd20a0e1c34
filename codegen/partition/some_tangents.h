#pragma once
// The backward of a call whose gradients flow into some of its results, made of the one for all of them.

#include "capture/function/joint.h"

#include <optional>
#include <vector>

namespace hindcast::codegen {

/// The joint program where nothing flows into the results for which `flows`, by tangent, is false. Their tangents are undefined, and so are
/// gradients that depend on no other: as with autograd, a formula that nothing flows into does not run. One that gets some of its gradients reads
/// zeros in place of the others. Nullopt: an op names the strides of a missing one; zeros have to be given for the tangents.
std::optional<capture::Joint> with_some_tangents(const capture::Joint& joint, const std::vector<bool>& flows);

/// The joint program without the gradients that only tangents for which `flows` is false reach.
capture::Joint with_gradients_of(const capture::Joint& joint, const std::vector<bool>& flows);

}  // namespace hindcast::codegen
