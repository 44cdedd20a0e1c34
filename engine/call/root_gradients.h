#pragma once

#include "capture/backward/trace.h"

namespace hindcast::engine {

/// The state before the first node: the gradients passed to backward() wait in the input buffers of the root nodes.
capture::Resume start_of(const capture::BackwardCall& call, const capture::Collected& collected);

}  // namespace hindcast::engine
