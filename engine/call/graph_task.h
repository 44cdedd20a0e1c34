#pragma once

#include "capture/backward/collected.h"

namespace hindcast::engine {

/// Adds the backward's nodes to this thread's graph task, which otherwise has only the carrier node. Python's register_multi_grad_hook
/// queries it.
void publish_nodes(const capture::Collected& collected, bool has_one_root);

}  // namespace hindcast::engine
