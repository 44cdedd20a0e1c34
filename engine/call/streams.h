#pragma once
// Stream handling for a backward whose nodes are on an accelerator: at its start, at its end, and in the choice of its plan.

#include "capture/backward/collected.h"
#include "capture/backward/trace.h"
#include "engine/cache/variants.h"
#include "hooks/node_streams.h"

namespace hindcast::engine {

hooks::NodeStreams streams_of(const capture::Collected& collected);

/// Registers the gradients that flow in at the start with `streams`. If all nodes have the same stream, makes it current from now on.
void begin(hooks::NodeStreams& streams, const capture::Collected& collected, const capture::Resume& start);

/// Makes the caller's streams wait for those that wrote a `.grad` or made a result.
void join(const hooks::NodeStreams& streams, const capture::Collected& collected);

/// Switches to the plan as captured if nodes have several streams: a kernel combines many nodes, and runs on one stream.
void require_plan_as_captured(Found& found);

}  // namespace hindcast::engine
