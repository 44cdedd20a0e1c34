#pragma once

#include "capture/backward/collected.h"

namespace hindcast::engine {

/// Tells the graph task of this thread which nodes the backward has. Python's register_multi_grad_hook asks the task, which knows one
/// node alone: the carrier.
void tell_nodes(const capture::Collected& collected, bool has_one_root);

}  // namespace hindcast::engine
