#pragma once
// Specialises a joint program for a backward in which only some results of the call have gradients.

#include "capture/function/joint.h"

#include <optional>
#include <vector>

namespace hindcast::codegen {

/// The joint program with undefined tangents for the results for which `flows`, indexed by tangent, is false. Gradients that depend only on
/// undefined tangents are undefined too: as in autograd, a formula without any incoming gradient does not run. A formula with some of its
/// incoming gradients reads zeros for the others. nullopt if an op depends on the strides of an undefined tangent; the caller must then
/// pass zeros for the tangents.
std::optional<capture::Joint> with_some_tangents(const capture::Joint& joint, const std::vector<bool>& flows);

/// The joint program without the gradients that depend only on tangents for which `flows` is false.
capture::Joint with_gradients_of(const capture::Joint& joint, const std::vector<bool>& flows);

}  // namespace hindcast::codegen
