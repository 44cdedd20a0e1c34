// Backwards with create_graph, outside of compiled functions. Such a backward is a function of the tensors that its nodes saved and of the
// incoming gradients, so it is compiled like any function (engine/aot). Its results have one node, whose edges lead to the histories of
// these tensors, and whose own backward is a program too.
//
//   inputs   the saved tensors, each once; the gradients of the roots; and empty tensors that carry the nodes' integers as sizes, so that
//            changing sizes become symbols
//   facts    everything else: the structure, scalars, and which input is which saved tensor
//
// The function runs the nodes' formulas (capture/backward/formulas.h). It contains no user code: a backward with hooks or opaque nodes runs
// on the stock engine. AccumulateGrad nodes always run there, after the program.

#include "base/first_line.h"
#include "base/fork.h"
#include "base/log.h"
#include "cache/key.h"
#include "capture/backward/formulas.h"
#include "capture/recorder/recorder.h"
#include "engine/aot/carried_integers.h"
#include "engine/aot/gradient_nodes.h"
#include "engine/cache/payoff.h"
#include "engine/call/stopwatch.h"
#include "engine/call/workspace.h"
#include "engine/collect_call.h"
#include "engine/counters/fallback.h"
#include "engine/counters/stats_recorder.h"
#include "engine/plan/plan_slot.h"
#include "engine/takeover.h"
#include "hindcast/detail/aot_core.h"

#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace hindcast::engine {
namespace {

using capture::BackwardCall;
using capture::Collected;
using capture::Formulas;

// ---- the cache

/// The compiled backwards for one set of options.
struct Compiled {
  uint64_t compiler;
  Dynamic dynamic;
  size_t limit;
  bool async;
  std::shared_ptr<detail::AotCore> core;

  bool is_for(const Options& options) const {
    return compiler == options.compiler.identity() && dynamic == options.dynamic && limit == options.limit && async == options.async;
  }
};

class Kept {
 public:
  static Kept& of_process() {
    static constinit base::MadeOnce<Kept> kept;  // never destroyed: threads may run backwards until the process ends
    return kept.get();
  }

  std::shared_ptr<detail::AotCore> core(const Options& options) {
    if (auto known = find(options)) return known;
    AotOptions own;
    own.fw_compiler = own.bw_compiler = options.compiler;
    own.dynamic = options.dynamic;
    own.limit = options.limit;
    own.async = options.async;
    own.fallback = false;  // what cannot be traced runs on the stock engine
    const auto made = std::make_shared<detail::AotCore>(own);
    std::vector<Compiled> gone;  // created and destroyed without the lock, since AotCores have locks of their own
    const std::lock_guard lock(mutex_);
    constexpr size_t kMost = 8;
    if (compiled_.size() == kMost) gone.swap(compiled_);
    compiled_.push_back({options.compiler.identity(), options.dynamic, options.limit, options.async, made});
    return made;
  }

  /// Why backwards of this structure run on the stock engine: they cannot be traced, or are not worth a trace (payoff.h).
  std::optional<FallbackReason> why_left(const cache::KeyHash& structure, const Options& options) {
    const std::lock_guard lock(mutex_);
    const auto known = structures_.find(structure.low);
    if (known != structures_.end()) return known->second.is_refused ? std::optional(FallbackReason::CreateGraph) : std::nullopt;
    // Captured backwards keep to the bound themselves, so beyond twice the bound the excess is functions, including these.
    const bool is_full = PlanSlot::footprint_of_all() / 2 > options.cache_bytes;
    const bool pays = !backs_off(options) || payoff_.may_capture(structure, payoff_.next(), [] { return Payoff::Room(); });
    return pays && !is_full ? std::nullopt : std::optional(FallbackReason::DoesNotPay);
  }
  void traced(const cache::KeyHash& structure, size_t nodes) {
    const std::lock_guard lock(mutex_);
    payoff_.captured(nodes);
    note(structure);
  }
  void hit(const cache::KeyHash& structure, size_t nodes) {
    const std::lock_guard lock(mutex_);
    payoff_.hit(note(structure).hits++, nodes);
  }
  /// The structure cannot be traced: do not try again.
  void refuse(const cache::KeyHash& structure) {
    const std::lock_guard lock(mutex_);
    note(structure).is_refused = true;
  }

  void forget() {
    std::vector<Compiled> gone;
    const std::lock_guard lock(mutex_);
    gone.swap(compiled_);
    structures_.clear();
    payoff_.reset();
  }

 private:
  std::shared_ptr<detail::AotCore> find(const Options& options) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(compiled_.begin(), compiled_.end(), [&](const Compiled& each) { return each.is_for(options); });
    return found == compiled_.end() ? nullptr : found->core;
  }
  struct Structure {
    uint32_t hits = 0;
    bool is_refused = false;
  };
  Structure& note(const cache::KeyHash& structure) {
    constexpr size_t kMost = 4096;
    if (structures_.size() == kMost && !structures_.contains(structure.low)) structures_.clear();
    return structures_[structure.low];
  }

  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Cache};
  std::vector<Compiled> compiled_;
  std::unordered_map<uint64_t, Structure> structures_;
  Payoff payoff_;
};

// ---- one backward as the call of a function

/// The inputs of the function, and the position of each tensor and number of the backward among them.
class Inputs {
 public:
  Inputs(const Collected& collected, const std::vector<at::Tensor>& root_gradients)
      : tensors_(collected.tensors.size()), integers_(collected.integers) {
    for (const at::Tensor& tensor : collected.tensors) add(tensor);
    for (const at::Tensor& gradient : root_gradients) add(gradient);
    carriers_ = inputs_.size();
    integers_.append_carriers(inputs_);
  }

  std::vector<at::Tensor> take() { return std::move(inputs_); }

  void append_facts(cache::KeyBytes& facts) const {
    cache::append_bytes(facts, places_.data(), places_.size() * sizeof(places_[0]));
    integers_.append_facts(facts);
  }

  /// The tensors of the backward, then the gradients of its roots, taken from the inputs or their stand-ins.
  std::vector<at::Tensor> tensors(const std::vector<at::Tensor>& given) const {
    std::vector<at::Tensor> tensors;
    for (const uint32_t place : places_) tensors.push_back(place == kNone ? at::Tensor() : given[place]);
    return tensors;
  }
  size_t saved_tensors() const { return tensors_; }
  std::vector<c10::SymInt> integers(const std::vector<at::Tensor>& given) const {
    return integers_.read(std::span(given).subspan(carriers_));
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t(0);
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return places_.push_back(kNone);
    const c10::StorageImpl* const storage = tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
    for (uint32_t i = 0; i < inputs_.size(); ++i) {
      if (storages_[i] == storage && is_same(inputs_[i], tensor)) return places_.push_back(i);
    }
    places_.push_back(static_cast<uint32_t>(inputs_.size()));
    inputs_.push_back(tensor);
    storages_.push_back(storage);
  }

  // A tensor saved by one node as its result and by the next as its argument is two tensor objects with one history.
  static bool is_same(const at::Tensor& a, const at::Tensor& b) {
    if (a.is_same(b)) return true;
    if (!a.has_storage() || a.requires_grad() != b.requires_grad() || a.is_leaf() || b.is_leaf()) return false;
    if (a.dtype() != b.dtype() || a.sizes() != b.sizes() || a.strides() != b.strides() || a.storage_offset() != b.storage_offset())
      return false;
    if (a.is_conj() != b.is_conj() || a.is_neg() != b.is_neg()) return false;
    return a.grad_fn() == b.grad_fn() && a.output_nr() == b.output_nr();
  }

  const size_t tensors_;
  const CarriedIntegers integers_;
  std::vector<at::Tensor> inputs_;
  std::vector<const c10::StorageImpl*> storages_;  // of the first inputs
  std::vector<uint32_t> places_;
  size_t carriers_ = 0;
};

class BackwardWithGraph {
 public:
  BackwardWithGraph(const CallWithGraph& with_graph, Workspace& work)
      : with_graph_(with_graph), call_(with_graph.call), options_(with_graph.options), collected_(work.collected), work_(work) {}

  bool has_run_stock() const { return has_run_stock_; }
  /// Returns false if nothing has happened.
  bool run(std::vector<at::Tensor>& results) {
    if (!collect(call_, options_, /*bitwise=*/false, work_, /*with_history=*/true)) return false;
    if (const char* const why = why_no_program()) {
      HC_LOG(Aot, Info, "a backward with create_graph is no program: {}", why);
      return leave();
    }
    Inputs inputs(collected_, call_.root_gradients);
    inputs.append_facts(collected_.key);
    const cache::KeyHash structure = cache::view_of(collected_.key).hash;
    Kept& kept = Kept::of_process();
    if (const auto reason = kept.why_left(structure, options_)) return leave(*reason);
    const auto function = [&](const std::vector<at::Tensor>& given) { return this->function(inputs, given); };
    const std::shared_ptr<detail::AotCore> core = kept.core(options_);
    std::vector<at::Tensor> given = inputs.take();
    std::vector<at::Tensor> gradients;
    const c10::AutoGradMode with_graph(true);  // as in the engine, regardless of the caller's mode
    try {
      gradients = core->call({.inputs = given,
                              .facts = std::string(reinterpret_cast<const char*>(collected_.key.data()), collected_.key.size()),
                              .is_static = {},
                              .function = function,
                              .has_separate_results = true,
                              .only_reads = true})
                      .tensors;
    } catch (const std::exception& error) {
      if (has_run_stock_) throw;
      HC_LOG(Fallbacks, Info, "a backward with create_graph cannot be traced: {}", base::first_line(error));
      kept.refuse(structure);
      return leave();
    }
    if (has_run_stock_ && !is_traced_) {
      record_fallback(FallbackReason::CreateGraph);
      results = std::move(gradients);
      return true;
    }
    const size_t nodes = collected_.calls.size();
    is_traced_ ? kept.traced(structure, nodes) : kept.hit(structure, nodes);
    is_traced_ ? stats_recorder().add_miss() : stats_recorder().add_hit();
    stats_recorder().add_backward();
    stats_recorder().add_nodes(nodes);
    if (has_run_stock_) {  // the results have different histories: in the call that is traced, LibTorch makes them
      results = std::move(gradients);
      return true;
    }
    give_each_its_own_node(gradients, given);
    given.clear();  // deliver() frees what the nodes have saved
    deliver(std::move(gradients), results);
    return true;
  }

 private:
  const char* why_no_program() const {
    if (collected_.has_hooks) return "it has hooks";
    if (collected_.has_opaque) {
      for (const capture::NodeCall& call : collected_.calls) {
        if (call.needed && call.opaque_reason != nullptr) return call.opaque_reason;
      }
      return "a node cannot be looked into";
    }
    if (has_a_result_of_another()) return "one gradient is computed from another one";
    if (!is_on_callers_stream()) return "nodes are on another stream than the caller's";
    return nullptr;
  }

  // Whether one gradient is computed from another that is returned, too: grad(y, {h, x}) with an h that was computed from x. The other is
  // then in its history, which nodes of one program do not have.
  bool has_a_result_of_another() const {
    if (collected_.captures.size() < 2) return false;
    return std::any_of(collected_.calls.begin(), collected_.calls.end(), [](const capture::NodeCall& call) {
      return call.has_captures && call.needed && call.kind != capture::NodeKind::Accumulate;
    });
  }

  // The program runs on the caller's stream. Nodes on other streams need the stock engine, which synchronises streams.
  bool is_on_callers_stream() const {
    if (!collected_.stream) return true;
    const c10::Stream stream = *collected_.stream;
    return collected_.has_one_stream && stream == c10::impl::VirtualGuardImpl(stream.device_type()).getStream(stream.device());
  }

  static bool leave(FallbackReason reason = FallbackReason::CreateGraph) {
    record_fallback(reason);
    return false;
  }

  // If it is not being traced, runs the stock engine on the real inputs.
  detail::FunctionOutput function(const Inputs& inputs, const std::vector<at::Tensor>& given) {
    if (capture::Recorder::current() == nullptr) {
      has_run_stock_ = true;
      return {.tensors = with_graph_.stock(call_)};
    }
    is_traced_ = true;
    std::optional<Formulas> formulas;
    capture::Recorder::unrecorded([&] { pack(formulas); });
    const std::vector<at::Tensor> tensors = inputs.tensors(given);
    const std::vector<c10::SymInt> integers = inputs.integers(given);
    const auto saved = std::span(tensors).first(inputs.saved_tensors());
    auto [captured, of_leaves] = formulas->run({saved, integers, std::span(tensors).subspan(inputs.saved_tensors())});
    captured.insert(captured.end(), of_leaves.begin(), of_leaves.end());
    return {.tensors = std::move(captured)};
  }

  // Packing a node asks the graph task which of its results are needed.
  void pack(std::optional<Formulas>& formulas) {
    if (call_.outputs.empty()) {
      formulas.emplace(collected_);
    } else {
      with_graph_.in_carrier([&] { formulas.emplace(collected_); });
    }
  }

  void deliver(std::vector<at::Tensor> gradients, std::vector<at::Tensor>& results) {
    size_t next = 0;
    for (const capture::GradCapture& capture : collected_.captures) results[capture.output] = std::move(gradients[next++]);
    torch::autograd::edge_list leaves;
    std::vector<at::Tensor> of_leaves;
    for (const capture::NodeCall& call : collected_.calls) {
      if (!call.needed) continue;
      if (call.kind == capture::NodeKind::Accumulate) {
        if (!gradients[next].defined()) {
          ++next;
          continue;
        }
        leaves.emplace_back(call.node->getptr(), 0);
        of_leaves.push_back(std::move(gradients[next++]));
      } else if (!call_.keep_graph) {
        call.node->release_variables();
      }
    }
    if (!leaves.empty()) with_graph_.stock({leaves, of_leaves, call_.keep_graph, /*accumulate_grad=*/true, {}});
  }

  const CallWithGraph& with_graph_;
  const BackwardCall& call_;
  const Options& options_;
  Collected& collected_;
  Workspace& work_;
  bool has_run_stock_ = false, is_traced_ = false;
};

bool run(const CallWithGraph& call, std::vector<at::Tensor>& results) {
  static thread_local Pause pause;
  const Options& options = call.options;
  const bool is_watched = options.verify || options.nan_guard || options.collector == Collector::Visitor;
  // One node replaces many, so gradients that flow into the history are summed in another order than without the program.
  const bool is_bitwise = wants_equal_bits(options);
  const bool writes_to_some = call.call.accumulate_grad && !call.call.outputs.empty();
  if (is_watched || is_bitwise || writes_to_some || (backs_off(options) && pause.skips())) {
    record_fallback(FallbackReason::CreateGraph);
    return false;
  }
  const Stopwatch watch;
  BorrowedWorkspace work;
  BackwardWithGraph backward(call, *work);
  const bool ran = backward.run(results);
  ran && !backward.has_run_stock() ? pause.took_one() : pause.left_one();
  if (ran) HC_LOG(Perf, Info, "backward with create_graph in {:.1f} us", watch.us());
  return ran;
}

void forget() { Kept::of_process().forget(); }

[[maybe_unused]] const bool is_set = (set_backwards_with_graph({&run, &forget}), true);

}  // namespace
}  // namespace hindcast::engine
