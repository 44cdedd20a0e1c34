#pragma once

#include "capture/backward/collected.h"
#include "engine/cache/trial.h"
#include "hindcast/options.h"

#include <functional>
#include <vector>

namespace hindcast::engine {

/// Runs `body` inside a node that the stock engine executes, so that user code finds a graph task: LibTorch itself then handles
/// callbacks, re-entrancy and the question which outputs are needed.
using Carrier = std::function<void(const std::function<void()>& body)>;

/// Runs one backward from start to end. Returns false, before any effect, when the stock engine must run it (base::Unsupported and
/// errors of nodes that cannot be collected; already counted). `results` has one place per output of grad(). `trial` may be null.
bool backward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, Trial* trial,
              std::vector<at::Tensor>& results);

}  // namespace hindcast::engine
