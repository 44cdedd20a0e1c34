#include "engine/takeover.h"

#include "base/fork.h"
#include "base/thread_end.h"
#include "capture/recorder/libtorch_compat.h"
#include "capture/recorder/recorder.h"
#include "engine/backward.h"
#include "engine/call_state.h"
#include "engine/counters/fallback.h"
#include "engine/options/use_options.h"
#include "hooks/current_node.h"
#include "hooks/saved_tensor_hooks.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <mutex>

namespace hindcast::engine {
namespace {

using namespace torch::autograd;

struct ThreadOptions {
  const Options* own = nullptr;  // the innermost guard's
  int on_stock_engine = 0;       // number of OnStockEngine objects
};
thread_local ThreadOptions of_thread;
std::atomic<const Options*> of_process{nullptr};
thread_local bool inside = false;  // this thread is inside a backward of ours
thread_local int running = 0;      // backwards of this thread that are reading their options
BackwardsWithGraph with_graph = {};

struct Inside {
  Inside() {
    inside = true;
    ++running;
  }
  ~Inside() {
    inside = false;
    --running;
  }
};

// A leaf node whose apply() is our backward: the stock engine runs it, so user code finds a complete graph task.
struct CarrierNode final : Node {
  explicit CarrierNode(const at::Tensor& gradient) : Node(edge_list()) { add_input_metadata(gradient); }
  variable_list apply(variable_list&&) override {
    (*body)();
    return {};
  }
  std::string name() const override { return "hindcast::Carrier"; }
  const std::function<void()>* body = nullptr;
};

// One per thread, made on first use: a thread is inside one backward of ours at a time.
struct ThreadCarrier {
  at::Tensor gradient = at::zeros({});  // a CPU scalar: otherwise the stock engine would run the node on a device thread
  decltype(capture::own_node<CarrierNode>(nullptr)) node = capture::own_node(new CarrierNode(gradient));
};

ThreadCarrier& thread_carrier() {
  static thread_local ThreadCarrier carrier;
  return carrier;
}

// Replaces the carrier if user code that asked LibTorch for the current node has left hooks on it: these would run in every later backward
// of the thread.
struct RenewCarrier {
  ThreadCarrier& carrier;
  ~RenewCarrier() {
    CarrierNode& node = *carrier.node;
    if (!node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty())
      carrier.node = capture::own_node(new CarrierNode(carrier.gradient));
  }
};

class TakeoverEngine final : public Engine {
 public:
  explicit TakeoverEngine(Engine& former) : former_(former) {}
  Engine& former() { return former_; }

  variable_list execute(const edge_list& roots, const variable_list& gradients, bool keep_graph, bool create_graph, bool accumulate_grad,
                        const edge_list& outputs) override {
    if (base::thread_has_ended()) return former_.execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
    if (capture::Recorder* const recorder = capture::Recorder::current()) {
      capture::StartedBackward backward{roots, outputs, accumulate_grad};
      if (recorder->begins_backward(backward))
        return former_.execute(backward.roots, gradients, keep_graph, create_graph, accumulate_grad, backward.outputs);
    }
    Trial* const trial = Trial::take();
    const Options* options = current_options();
    if (!options) return former_.execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
    if (const auto reason = fallback_reason(*options, create_graph, accumulate_grad, roots, outputs)) {
      record_fallback(*reason);
      return former_.execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
    }
    variable_list root_gradients = gradients;
    validate_outputs(roots, root_gradients, [](const std::string& text) { return text; });
    std::vector<at::Tensor> results(accumulate_grad ? 0 : outputs.size());
    const Inside guard;
    const Carrier in_carrier = [&](const std::function<void()>& body) { carry(body, keep_graph, accumulate_grad, outputs, roots); };
    if (create_graph) {
      const auto stock = [&](const capture::BackwardCall& call) {
        inside = false;
        return former_.execute(call.roots, call.root_gradients, call.keep_graph, true, call.accumulate_grad, call.outputs);
      };
      if (with_graph.run({{roots, root_gradients, keep_graph, accumulate_grad, outputs}, *options, in_carrier, stock}, results))
        return results;
      inside = false;
      return former_.execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
    }
    if (backward({roots, root_gradients, keep_graph, accumulate_grad, outputs}, *options, in_carrier, trial, results)) return results;
    inside = false;
    if (trial != nullptr && trial->is_timed()) {
      const uint64_t start = detail::processor_ns();
      variable_list found = former_.execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
      trial->stock_took(detail::processor_ns() - start);
      return found;
    }
    return former_.execute(roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(const std::shared_ptr<GraphTask>& task, capture::NodePtr root,
                                                                 InputBuffer&& buffer) override {
    if (current_options() != nullptr) record_fallback(FallbackReason::GraphTaskEntry);
    return former_.execute_with_graph_task(task, std::move(root), std::move(buffer));
  }
  std::unique_ptr<AnomalyMetadata> make_anomaly_metadata() override { return former_.make_anomaly_metadata(); }
  // Called for each tensor that any node saves.
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    hooks::SavedTensorHooks* ours = hooks::current_saved_tensor_hooks();
    if (ours == nullptr) return former_.get_default_saved_variable_hooks();
    // A trace saves stand-ins, which cannot be recomputed or copied.
    return capture::Recorder::current() == nullptr ? ours->next() : nullptr;
  }
#if HINDCAST_ENGINE_HAS_NODE_CREATION_HOOKS
  std::vector<std::unique_ptr<NodeCreationHook>> get_node_creation_hooks() override { return former_.get_node_creation_hooks(); }
#endif
  void thread_on_exception(const std::shared_ptr<GraphTask>& task, const capture::NodePtr& node, std::exception& error) override {
    former_.thread_on_exception(task, node, error);
  }
  void thread_init(int device, const std::shared_ptr<ReadyQueue>& queue, bool should_increment) override {
    former_.thread_init(device, queue, should_increment);
  }

 private:
  static std::optional<FallbackReason> fallback_reason(const Options& options, bool create_graph, bool accumulate_grad,
                                                       const edge_list& roots, const edge_list& outputs) {
    if (!options.enabled || disabled_by_environment()) return FallbackReason::Disabled;
    if (inside) return FallbackReason::InsideHook;
    if (create_graph && with_graph.run == nullptr) return FallbackReason::CreateGraph;
    if (roots.empty() || (!accumulate_grad && outputs.empty())) return FallbackReason::CollectFailed;  // the stock engine's own error
    return fallback_for_thread_state();
  }

  void carry(const std::function<void()>& body, bool keep_graph, bool accumulate_grad, const edge_list& outputs, const edge_list& roots) {
    const std::function<void()> with_needed = [&] {
      if (!outputs.empty()) tell(roots, outputs, accumulate_grad);
      body();
    };
    ThreadCarrier& carrier = thread_carrier();
    const RenewCarrier renew{carrier};
    carrier.node->body = &with_needed;
    // With an output of its own, the graph task counts as one for some gradients only, which re-entrant checkpoints query.
    const edge_list carried = outputs.empty() ? edge_list{} : edge_list{Edge(carrier.node, 0)};
    former_.execute({Edge(carrier.node, 0)}, {carrier.gradient}, keep_graph, false, true, carried);
  }

  // Fills in what the engine's own graph task would have: which nodes are on a path to an output and, for grad(), which gradients are
  // results.
  static void tell(const edge_list& roots, const edge_list& outputs, bool accumulate_grad) {
    using ExecInfo = GraphTask::ExecInfo;
    auto& info = const_cast<std::unordered_map<Node*, ExecInfo>&>(*get_current_graph_task_exec_info());
    for (size_t i = 0; i < outputs.size(); ++i) {
      ExecInfo& output = info[outputs[i].function.get()];
      if (accumulate_grad) {
        output.needed_ = true;
        continue;
      }
      if (!output.captures_) output.captures_ = std::make_unique<std::vector<ExecInfo::Capture>>();
      output.captures_->emplace_back(static_cast<int>(outputs[i].input_nr), static_cast<int>(i));
    }
    std::unordered_set<Node*> seen;
    std::vector<std::pair<Node*, size_t>> frames;
    for (const Edge& root : roots) {
      if (root.function && seen.insert(root.function.get()).second) frames.emplace_back(root.function.get(), 0);
      while (!frames.empty()) {
        auto& [node, next] = frames.back();
        if (next < node->next_edges().size()) {
          Node* child = node->next_edges()[next++].function.get();
          if (child && seen.insert(child).second) frames.emplace_back(child, 0);
          continue;
        }
        for (const Edge& edge : node->next_edges()) {
          const auto found = edge.function ? info.find(edge.function.get()) : info.end();
          if (found != info.end() && found->second.should_execute()) {
            info[node].needed_ = true;
            break;
          }
        }
        frames.pop_back();
      }
    }
  }

  Engine& former_;
};

std::atomic<TakeoverEngine*> installed{nullptr};
Engine& stub() { return *installed.load(); }

}  // namespace

void install() {
  Engine::get_default_engine();  // before the lock: with libhindcast_auto.so, a process's first call re-enters install()
  static constinit base::MadeOnce<base::ForkSafe<std::mutex>> mutex;
  const std::lock_guard lock(mutex.get(base::ForkRank::Setup));
  Engine& current = Engine::get_default_engine();
  if (&current == installed.load()) return;
  // Never destroyed: LibTorch may ask for its engine until the process ends.
  installed.store(new TakeoverEngine(current));
  set_default_engine_stub(&stub);
}

Node* current_node() {
  Node* const node = hooks::CurrentNode::of_thread();
  return node != nullptr && get_current_node() == thread_carrier().node ? node : nullptr;
}

void set_backwards_with_graph(const BackwardsWithGraph& backwards) { with_graph = backwards; }
void forget_backwards_with_graph() {
  if (with_graph.forget != nullptr) with_graph.forget();
}

const Options* current_options() {
  if (of_thread.on_stock_engine != 0) return nullptr;
  return of_thread.own != nullptr ? of_thread.own : of_process.load(std::memory_order_acquire);
}
void set_thread_options(const Options* options) { of_thread.own = options; }
void set_process_options(const Options* options) { of_process.store(options, std::memory_order_release); }
OnStockEngine::OnStockEngine() { ++of_thread.on_stock_engine; }
OnStockEngine::~OnStockEngine() { --of_thread.on_stock_engine; }
bool reads_options() { return running != 0; }

}  // namespace hindcast::engine
