#pragma once
// Convolutions in the layout that is faster on this machine.

#include "engine/aot/halves.h"

#include <memory>

namespace hindcast::engine {

class Specialisation;

/// Where convolutions channels-last take less time, all copies included, programs that work so take the place of `halves`. Times are
/// measured, which takes some runs of each convolution: beside the calls, unless AotOptions::async is off.
void choose_layout(const std::shared_ptr<Specialisation>& of, const std::shared_ptr<const Halves>& halves, const AotOptions& options);

}  // namespace hindcast::engine
