#pragma once
// Replaces LibTorch's autograd engine. Only this file and its .cpp know how.
//
// LibTorch finds its engine through a stub; we install a stub that returns our subclass, and keep the stock engine. Calls from threads
// without a guard, and everything that only one engine per process may do (device threads), are forwarded to the stock engine at the
// cost of a thread-local read, a load and a virtual call.

#include "capture/backward/collected.h"
#include "engine/backward.h"
#include "hindcast/options.h"

#include <c10/util/FunctionRef.h>

namespace torch::autograd {
struct Node;
}

namespace hindcast::engine {

/// Installs the engine if it is not the current one. Thread-safe.
void install();

/// A call with create_graph. `stock` runs a call on the stock engine: the rest of this one, or another.
struct CallWithGraph {
  const capture::BackwardCall& call;
  const Options& options;
  const Carrier& in_carrier;
  c10::function_ref<std::vector<at::Tensor>(const capture::BackwardCall&)> stock;
};
/// What runs backwards with create_graph; a folder above this one provides it.
struct BackwardsWithGraph {
  // Returns false, before any effect and already counted, if the stock engine must run the call.
  bool (*run)(const CallWithGraph& call, std::vector<at::Tensor>& results);
  void (*forget)();  // drops everything it has cached
};
/// Call it once, before main().
void set_backwards_with_graph(const BackwardsWithGraph& backwards);
void forget_backwards_with_graph();

/// The node whose hooks, or whose own (opaque) call, run on this thread in a backward of ours. nullptr elsewhere, and while the stock
/// engine runs a node.
torch::autograd::Node* current_node();

/// The options that a backward of this thread uses: those of the thread's innermost guard, or else the process's. nullptr if it runs on
/// the stock engine.
const Options* current_options();
/// Sets the options of this thread's innermost guard; nullptr if the thread has no guard.
void set_thread_options(const Options* options);
/// Sets the options of threads without a guard. They must live until the process ends: a backward on another thread may be reading them.
void set_process_options(const Options* options);
/// True while a backward of this thread is reading the options that it began with.
bool reads_options();

/// While one lives, backwards of this thread run on the stock engine, whatever guards exist or are created.
class OnStockEngine {
 public:
  OnStockEngine();
  ~OnStockEngine();
  OnStockEngine(const OnStockEngine&) = delete;
  OnStockEngine& operator=(const OnStockEngine&) = delete;
};

}  // namespace hindcast::engine
