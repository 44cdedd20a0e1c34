#pragma once
// Stands in for LibTorch's autograd engine. The only file that knows how we get in.
//
// LibTorch finds its engine through a stub; we install one that returns our subclass and keep the engine that was there.
// Calls of threads without a guard, and everything that only one engine per process may do (device threads), go to the
// former engine: a thread-local look, a load and a virtual call is all they pay.

#include "capture/backward/collected.h"
#include "engine/backward.h"
#include "engine/options.h"

#include <c10/util/FunctionRef.h>

namespace torch::autograd {
struct Node;
}

namespace hindcast::engine {

/// Installs the engine if it is not the current one. Thread-safe.
void install();

/// A call with create_graph. `stock` runs the rest of it, or another one, on the former engine.
struct CallWithGraph {
  const capture::BackwardCall& call;
  const Options& options;
  const Carrier& in_carrier;
  c10::function_ref<std::vector<at::Tensor>(const capture::BackwardCall&)> stock;
};
/// What runs backwards with create_graph: a layer above. False: nothing has happened, and the stock engine runs the call; this was counted.
struct BackwardsWithGraph {
  bool (*run)(const CallWithGraph& call, std::vector<at::Tensor>& results);
  void (*forget)();  // all that it keeps
};
/// Once, before main().
void set_backwards_with_graph(const BackwardsWithGraph& backwards);
void forget_backwards_with_graph();

/// The node whose hooks run on this thread, or which is called as itself, in a backward of ours; null elsewhere, and where it is the
/// former engine's node.
torch::autograd::Node* current_node();

/// What a backward of this thread runs with: the options of the thread's innermost guard, or else those of the process. Null: it runs on the
/// stock engine.
const Options* current_options();
/// Of this thread's innermost guard. Null: the thread has none.
void set_thread_options(const Options* options);
/// For threads without a guard. The options must live until the process ends: a backward of another thread may be reading them.
void set_process_options(const Options* options);
/// A backward of this thread reads the options that it began with.
bool reads_options();

/// While one lives, backwards of this thread run on the stock engine, whatever guards there are and come.
class OnStockEngine {
 public:
  OnStockEngine();
  ~OnStockEngine();
  OnStockEngine(const OnStockEngine&) = delete;
  OnStockEngine& operator=(const OnStockEngine&) = delete;
};

}  // namespace hindcast::engine
