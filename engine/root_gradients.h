#pragma once

#include "capture/backward/trace.h"

namespace hindcast::engine {

/// The state before the first node: the gradients that were given to backward() wait where the roots lead.
capture::Resume start_of(const capture::BackwardCall& call, const capture::Collected& collected);

}  // namespace hindcast::engine
