#pragma once
// Stands in for LibTorch's autograd engine. The only file that knows how we get in.
//
// LibTorch finds its engine through a stub; we install one that returns our subclass and keep the engine that was there.
// Calls of threads without a guard, and everything that only one engine per process may do (device threads), go to the
// former engine: a thread-local look and a virtual call is all they pay.

#include "engine/options.h"

namespace torch::autograd {
struct Node;
}

namespace hindcast::engine {

/// Installs the engine if it is not the current one. Thread-safe.
void install();

/// The node whose hooks run on this thread, or which is called as itself, in a backward of ours; null elsewhere, and where it is the
/// former engine's node.
torch::autograd::Node* current_node();

/// The options of this thread's innermost guard, or null.
const Options* current_options();
void set_current_options(const Options* options);

}  // namespace hindcast::engine
