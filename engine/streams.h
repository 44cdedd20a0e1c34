#pragma once
// The start and the end of a backward whose nodes are on an accelerator, and which plan it takes.

#include "capture/backward/collected.h"
#include "capture/backward/trace.h"
#include "engine/variants.h"
#include "hooks/node_streams.h"

namespace hindcast::engine {

hooks::NodeStreams streams_of(const capture::Collected& collected);

/// Gives the streams the gradients that flow in at the start. Where all nodes have one stream, that stream is current from now on.
void begin(hooks::NodeStreams& streams, const capture::Collected& collected, const capture::Resume& start);

/// The caller's streams wait for those that wrote a `.grad` or made a result.
void join(const hooks::NodeStreams& streams, const capture::Collected& collected);

/// Takes the plan as it was captured where nodes have several streams: a kernel is of many nodes, and runs on one.
void avoid_kernels(Found& found);

}  // namespace hindcast::engine
