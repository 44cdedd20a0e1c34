// One backward, from start to end. The table of contents of hindcast:
//
//   collect      walk the nodes in the engine's order            -> key, facts, tensors        capture/collect
//   look up      the key finds the structure, the facts a variant -> plan                      cache/, engine/variants
//   run          replay the plan; hooks, opaque nodes and .grad in their places                engine/run
//   on a miss:   say why, run every node once and record it, make a plan of the record         capture/trace, codegen/plan
//
// Until something runs, everything can still be left to the stock engine. After that nothing restarts: when a hook or an
// opaque node returns something else than it did at capture, the rest of the backward is another, later start.

#include "engine/backward.h"

#include "capture/backward/collect.h"
#include "capture/recorder/recorder.h"
#include "capture/backward/trace.h"
#include "base/check.h"
#include "base/log.h"
#include "engine/call_state.h"
#include "engine/captures.h"
#include "engine/compile.h"
#include "engine/free_heap.h"
#include "engine/fused_plans.h"
#include "engine/diagnosis/miss_log.h"
#include "engine/diagnosis/nan_guard.h"
#include "engine/payoff.h"
#include "engine/diagnosis/reproducer.h"
#include "engine/run.h"
#include "engine/saved_gradients.h"
#include "engine/stats_recorder.h"
#include "engine/variants.h"
#include "hooks/add_gradients.h"

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <unordered_set>

namespace hindcast::engine {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t ns_since(Clock::time_point start) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// The call cannot be taken over; nothing has happened yet.
struct NotStarted : std::runtime_error {
  NotStarted(FallbackReason why, const std::string& text) : std::runtime_error(text), reason(why) {}
  FallbackReason reason;
};

bool is_large(const at::Tensor& tensor) {
  constexpr size_t kLarge = size_t{1} << 17;  // what glibc maps by itself, until the first such block is freed
  return tensor.defined() && tensor.has_storage() && tensor.storage().nbytes() >= kLarge;
}

// A guard that looks for infinities wants to see every gradient.
bool backs_off(const Options& options) { return options.back_off && !options.nan_guard && may_back_off(); }

// Vectors that keep their memory from call to call.
struct Workspace {
  capture::Collected collected;
  capture::Facts resumed;
  capture::Bindings bindings;
  capture::Env env;
  cache::KeyBytes state;
};

capture::Resume start_of(const capture::BackwardCall& call, const capture::Collected& collected) {
  capture::Resume start;
  for (size_t i = 0; i < collected.roots.size(); ++i) {
    const auto& root = collected.roots[i];
    if (root.call == capture::kNoCall) continue;
    const uint32_t input = collected.calls[root.call].first_input + root.input_nr;
    const auto waiting =
        std::find_if(start.buffers.begin(), start.buffers.end(), [&](const auto& buffer) { return buffer.first == input; });
    if (waiting == start.buffers.end()) {
      start.buffers.emplace_back(input, call.root_gradients[i]);
    } else {  // the same root twice: the engine sums before anything runs
      waiting->second = hooks::add_gradients(std::move(waiting->second), call.root_gradients[i]);
    }
  }
  return start;
}

class Backward {
 public:
  Backward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, std::vector<at::Tensor>& results,
           Workspace& work)
      : call_(call),
        options_(options),
        in_carrier_(in_carrier),
        results_(results),
        work_(work),
        backs_off_(backs_off(options)),
        to_the_bit_(options.deterministic || at::globalContext().deterministicAlgorithms()),
        now_(Payoff::of_process().next()) {
    collect_options_.use_visitor = options.collector == Collector::Visitor;
    collect_options_.all_opaque = !capture::recorder_available();
  }

  /// A reason: nothing has happened, and the stock engine runs the call.
  std::optional<FallbackReason> run() {
    const auto start = Clock::now();
    collect();
    capture::Resume resume = start_of(call_, work_.collected);
    Found found = find(resume);
    if (backs_off_ && !found && !may_capture(resume)) return FallbackReason::DoesNotPay;
    stats_recorder().add_collect_ns(ns_since(start));
    stats_recorder().add_nodes(work_.collected.calls.size());
    stats_recorder().add_backward();
    HC_LOG(Perf, Info, "{} nodes collected and looked up in {:.1f} us", work_.collected.calls.size(),
           static_cast<double>(ns_since(start)) * 1e-3);
    struct CountResult {  // also when a hook throws
      const bool& captured;
      ~CountResult() { captured ? stats_recorder().add_miss() : stats_recorder().add_hit(); }
    } count_result{captured_};
    if (found) {
      HC_LOG(Cache, Debug, "hit: graph {}, {} nodes", found.variant->graph()->id, work_.collected.calls.size());
    }

    if (options_.nan_guard) nan_guard_.emplace(work_.collected);
    const bool user_code = work_.collected.has_hooks || work_.collected.has_opaque || (found && found.plan->has_boundaries());
    const bool asks_engine = !found && !call_.outputs.empty();  // a traced node asks which outputs are needed
    const auto rest = [&] { run_from(std::move(resume), std::move(found)); };
    if (user_code || asks_engine) {
      in_carrier_([&] {
        tell_nodes();
        rest();
      });
    } else {
      const c10::AutoGradMode no_grad(false);
      rest();
    }
    return std::nullopt;
  }

 private:
  // Python's register_multi_grad_hook asks the graph task which nodes it has. It knows one, the carrier.
  void tell_nodes() const {
    if (!work_.collected.has_hooks && !work_.collected.has_opaque) return;
    auto& nodes = const_cast<std::unordered_set<torch::autograd::Node*>&>(*torch::autograd::get_current_graph_task_nodes_in_graph());
    nodes.reserve(work_.collected.calls.size());
    for (const capture::NodeCall& call : work_.collected.calls) nodes.insert(call.node);
  }

  void collect() {
    work_.state.clear();
    append_call_state(work_.state);
    cache::append(work_.state, to_the_bit_ && replay_of(options_.compiler) != Replay::Eager);  // replay through ATen does not ask
    cache::append(work_.state, static_cast<int32_t>(options_.dynamic));
    cache::append(work_.state, collect_options_.use_visitor);
    cache::append(work_.state, call_.accumulate_grad);
    cache::append(work_.state, options_.compiler.identity());
    try {
      capture::collect(call_, collect_options_, work_.state, work_.collected);
    } catch (const capture::NotOnCpu& error) {
      throw NotStarted(FallbackReason::NonCpuDevice, error.what());
    } catch (const std::exception& error) {
      throw NotStarted(FallbackReason::CollectFailed, error.what());
    }
  }

  CallFacts facts() const { return {work_.collected.facts, work_.resumed}; }

  Found find(const capture::Resume& resume) {
    work_.resumed.clear();
    capture::append_resume_facts(resume, work_.resumed);
    if (!entry_) {
      const auto key = cache::view_of(work_.collected.key);
      structure_ = key.hash;
      entry_ = Captures::of_process().find(key);
      if (!entry_) return {};
    }
    Found found = entry_->find(resume.call, resume.stage, facts(), work_.bindings, work_.env);
    if (found) Payoff::of_process().hit(found.variant->use(now_));
    return found;
  }

  // The start of a structure that is known is worth a capture in any case: they are few, by Options::limit.
  bool may_capture(const capture::Resume& resume) {
    cache::KeyHash start = structure_;
    if (resume.call != 0 || resume.stage != capture::Stage::NodeStart) {
      const auto facts = std::as_bytes(std::span(work_.resumed));
      start = cache::hash_of({reinterpret_cast<const uint8_t*>(facts.data()), facts.size()});
      start.low ^= structure_.low + resume.call * 8 + static_cast<uint64_t>(resume.stage);
    } else if (entry_) {
      return true;
    }
    return Payoff::of_process().may_capture(start, now_, [&] { return Captures::of_process().room(options_); });
  }

  // Replays as far as the captures reach; captures what is new; goes on behind boundaries that changed.
  void run_from(capture::Resume resume, Found found) {
    for (;;) {
      if (!found) return capture_rest(std::move(resume));
      RECORD_FUNCTION("hindcast::run", std::vector<c10::IValue>());
      const auto start = Clock::now();
      const auto& compiled = found.variant->compiled;
      if (!found.plan->is_as_captured() && saves_a_gradient(*found.plan, work_.collected, resume)) {
        HC_LOG(Fusion, Info,
               "graph {}: without kernels this time, since a node saved memory of a gradient that is added to, or was given it",
               found.plan->graph().id);
        found.plan = found.variant->plan_as_captured();
      }
      auto next = engine::run({*found.plan, compiled.empty() ? nullptr : &compiled, work_.bindings, work_.env, work_.collected,
                               std::move(resume), call_.keep_graph, results_, observer(), !found.plan->is_as_captured()});
      stats_recorder().add_run_ns(ns_since(start));
      HC_LOG(Perf, Info, "graph {} replayed in {:.1f} us", found.plan->graph().id, static_cast<double>(ns_since(start)) * 1e-3);
      if (!next) return;
      resume = std::move(*next);
      found = resume.as_collected ? find(resume) : Found{};
    }
  }

  void capture_rest(capture::Resume resume) {
    RECORD_FUNCTION("hindcast::trace", std::vector<c10::IValue>());
    const auto start = Clock::now();
    captured_ = true;
    const bool is_start = resume.call == 0 && resume.stage == capture::Stage::NodeStart;  // asked before anything ran
    bool record = resume.as_collected && (!backs_off_ || is_start || may_capture(resume));
    std::vector<capture::FactOrigin> origins;
    try {
      if (record) origins = capture::describe_facts(work_.collected, collect_options_, resume.call);
    } catch (const std::exception&) {
      record = false;  // user code released or modified what a later node saved: that node raises the error at its turn
    }
    std::vector<capture::FactOrigin> resumed_origins;
    capture::Facts resumed;
    capture::append_resume_facts(resume, resumed, &resumed_origins);
    const capture::Facts collected = work_.collected.facts;
    const CallFacts captured{collected, resumed};
    const bool among_large_tensors = std::any_of(work_.collected.tensors.begin(), work_.collected.tensors.end(), is_large);

    const bool new_structure = entry_ == nullptr;
    if (new_structure) entry_ = std::make_shared<Entry>();
    const uint32_t call = resume.call;
    const capture::Stage stage = resume.stage;
    NextCapture next;
    next.allowed = record;
    if (record) next = entry_->plan_capture(work_.collected, origins, resumed_origins, call, stage, captured, options_);
    log_misses(work_.collected, new_structure, resume, next.misses);
    if (next.allowed && backs_off_) Payoff::of_process().captured();

    capture::ReplayCheck check;
    auto graph = capture::trace({work_.collected, std::move(resume), origins, next.dynamic, call_.keep_graph, next.allowed, results_,
                                 [](const std::string& name, const std::string& reason) { stats_recorder().add_opaque_node(name, reason); },
                                 [] { stats_recorder().add_hook_calls(1); }, options_.verify ? &check : nullptr, observer()});
    stats_recorder().add_trace_ns(ns_since(start));
    HC_LOG(Perf, Info, "captured in {:.1f} us", static_cast<double>(ns_since(start)) * 1e-3);
    if (!graph) return;  // the limit is reached: nodes ran as themselves
    // The backward is done. Whatever goes wrong with keeping it must not look like a failure of backward().
    try {
      if (options_.verify && !passes(*graph, check)) return;
      graph->id = static_cast<uint32_t>(stats_recorder().add_graph());
      graph->strict = to_the_bit_;
      log_graph(*graph);
      auto variant = std::make_shared<Variant>(call, stage, captured, std::move(next.dynamic), graph);
      const Replay replay = replay_of(options_.compiler);
      if (replay == Replay::Compiled) variant->compiled = compile(options_, graph);
      variant->made_by(now_);
      if (!Captures::of_process().keep(cache::view_of(work_.collected.key), entry_, variant, options_)) return too_large(*variant);
      if (replay == Replay::GroupsThroughAten || (replay == Replay::Kernels && !to_the_bit_)) {
        fuse({variant, replay, options_.verify ? std::make_shared<const capture::ReplayCheck>(std::move(check)) : nullptr}, options_.async);
      } else if (among_large_tensors && replay != Replay::Compiled) {
        fuse({variant, Replay::Eager}, true);
      }
      if (among_large_tensors) return_free_heap_after_captures();
    } catch (const std::exception& error) {
      refuse(*graph, error.what());
    }
  }

  // Trust mode: a graph whose replay on copies gives other bits than the capture did must never serve.
  static bool passes(const capture::Graph& graph, const capture::ReplayCheck& check) {
    const auto wrong = check.find_difference(graph);
    if (!wrong) return true;
    std::unordered_map<uint32_t, at::Tensor> given;
    for (const auto& [value, tensor] : check.inputs) given[value.index] = tensor;
    const std::string folder = write_reproducer({graph, given, *wrong});
    refuse(graph, folder.empty() ? *wrong : base::format("{}\nwhat shows it is in {}", *wrong, folder));
    return false;
  }

  capture::Observer* observer() { return nan_guard_ ? &*nan_guard_ : nullptr; }

  void too_large(const Variant& variant) const {
    if (backs_off_) Payoff::of_process().too_large(structure_);
    static std::atomic<bool> is_said = false;
    const auto level = is_said.exchange(true) ? base::Level::Info : base::Level::Warning;
    if (!base::enabled(base::Channel::CompiledAutograd, level)) return;
    base::write_log(base::Channel::CompiledAutograd, level,
                    base::format("graph {} is not kept: it takes {} KiB, Options::cache_bytes allows {} KiB for all graphs",
                                 variant.graph()->id, variant.footprint() >> 10, options_.cache_bytes >> 10));
  }

  static void refuse(const capture::Graph& graph, const std::string& reason) {
    stats_recorder().add_refused_graph();
    HC_LOG(CompiledAutograd, Error, "a captured graph is refused, please report it: {}\n{}", reason, graph.print());
  }

  const capture::BackwardCall& call_;
  const Options& options_;
  const Carrier& in_carrier_;
  std::vector<at::Tensor>& results_;
  Workspace& work_;
  capture::CollectOptions collect_options_;
  const bool backs_off_;
  const bool to_the_bit_;  // nothing rounds otherwise than it does at capture
  const uint64_t now_;     // number of the call
  cache::KeyHash structure_;
  std::shared_ptr<Entry> entry_;
  bool captured_ = false;              // something was not found: a miss
  std::optional<NanGuard> nan_guard_;  // speaks when it goes, whether the backward is done or has thrown
};

}  // namespace

bool backward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, std::vector<at::Tensor>& results) {
  Pause& pause = Pause::of_thread();
  if (backs_off(options) && pause.skips()) {
    record_fallback(FallbackReason::DoesNotPay);
    return false;
  }
  // A finished call leaves its workspace to the next one of this thread; a nested call (never ours today) makes its own.
  static thread_local std::unique_ptr<Workspace> spare;
  auto work = spare ? std::move(spare) : std::make_unique<Workspace>();
  struct Return {
    std::unique_ptr<Workspace>& work;
    ~Return() {
      work->collected.clear();  // its tensors must not outlive the call
      spare = std::move(work);
    }
  } give_back{work};
  try {
    const auto reason = Backward(call, options, in_carrier, results, *work).run();
    if (!reason) {
      pause.took_one();
      return true;
    }
    pause.left_one();
    record_fallback(*reason);
    return false;
  } catch (const NotStarted& reason) {
    record_fallback(reason.reason);
    HC_LOG(Fallbacks, Info, "{}", reason.what());
    return false;
  }
}

std::vector<std::shared_ptr<const capture::Graph>> captured_graphs() {
  std::vector<std::shared_ptr<const capture::Graph>> captured;
  for (const auto& variant : Captures::of_process().variants()) captured.push_back(variant->graph());
  std::sort(captured.begin(), captured.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  return captured;
}

void forget_graphs() {
  Captures::of_process().forget();
  Payoff::of_process().reset();
}

}  // namespace hindcast::engine
