#pragma once

#include "capture/backward/collected.h"
#include "engine/options.h"

#include <functional>
#include <memory>
#include <torch/csrc/autograd/function.h>
#include <vector>

namespace hindcast::engine {

/// Runs `body` inside a node that the stock engine executes, so that user code finds a graph task: callbacks, re-entrancy
/// and which outputs are needed are then LibTorch's own.
using Carrier = std::function<void(const std::function<void()>& body)>;

/// One backward from start to end. Returns false, before any effect, when the stock engine must run it (Unsupported and
/// errors of nodes that cannot be collected; already counted). `results` has one place per output of grad().
bool backward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, std::vector<at::Tensor>& results);

/// The graphs that the cache holds now, in the order of their capture.
std::vector<std::shared_ptr<const capture::Graph>> captured_graphs();

/// Forgets all captured graphs.
void forget_graphs();

}  // namespace hindcast::engine
