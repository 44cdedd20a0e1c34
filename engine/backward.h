#pragma once

#include "capture/backward/collected.h"
#include "engine/options.h"
#include "engine/trial.h"

#include <functional>
#include <vector>

namespace hindcast::engine {

/// Runs `body` inside a node that the stock engine executes, so that user code finds a graph task: callbacks, re-entrancy
/// and which outputs are needed are then LibTorch's own.
using Carrier = std::function<void(const std::function<void()>& body)>;

/// One backward from start to end. Returns false, before any effect, when the stock engine must run it (Unsupported and
/// errors of nodes that cannot be collected; already counted). `results` has one place per output of grad(). `trial` may be null.
bool backward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, Trial* trial,
              std::vector<at::Tensor>& results);

}  // namespace hindcast::engine
