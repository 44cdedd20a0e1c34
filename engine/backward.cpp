// One loss.backward(), from start to end. This file is the table of contents of hindcast; each line names the code to read next.
//
//   collect      walk the autograd nodes in the stock engine's order    -> key, facts, saved tensors   capture/backward/collect
//   look up      the key finds the structure, the facts one variant     -> plan, or a miss             cache/, engine/cache/variants
//
//   on a hit:
//     run        replay the plan: kernels and ATen calls, with hooks, opaque nodes and .grad in order  engine/call/run
//   on a miss:
//     capture    log why, then run every node once for real, tracing    -> graph                       capture/backward/trace
//     keep       cache the graph, and queue it for the compiler                                        engine/keep_capture
//     compile    in the background: graph -> groups -> kernels          -> a better plan               engine/compile/lower
//
// The first backward of a structure is therefore a miss; later ones replay its graph op by op through ATen until the compiler publishes
// a plan with kernels. The words key, fact, variant and plan are defined in docs/design.md.
//
// Until the first node runs, the call can still be handed to the stock engine with no side effects. That happens if the nodes cannot be
// collected; if the lookup missed and captures have not paid lately (engine/cache/payoff); if a node saved the memory of a .grad that this
// backward may add to (engine/call/saved_gradients); or if the stock engine was measured to be faster (engine/cache/trial).
//
// Once a node has run, there is no way back: nothing is undone or run twice. If a hook or an opaque node returns something other than it
// did at capture, the replay stops after it, and the rest of the backward is looked up as a *continuation*, which has captures of its own
// (engine/cache/variants). If user code has changed nodes that are still to run, the rest runs node by node, uncaptured.

#include "engine/backward.h"

#include "base/log.h"
#include "capture/backward/trace.h"
#include "engine/cache/captures.h"
#include "engine/cache/payoff.h"
#include "engine/call/facts_at_capture.h"
#include "engine/call/graph_task.h"
#include "engine/call/record.h"
#include "engine/call/root_gradients.h"
#include "engine/call/run.h"
#include "engine/call/saved_gradients.h"
#include "engine/call/stopwatch.h"
#include "engine/call/streams.h"
#include "engine/call/workspace.h"
#include "engine/collect_call.h"
#include "engine/counters/fallback.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/miss_log.h"
#include "engine/diagnosis/nan_guard.h"
#include "engine/diagnosis/opaque_nodes.h"
#include "engine/keep_capture.h"
#include "hooks/thread_state.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <exception>
#include <optional>

namespace hindcast::engine {
namespace {

class OneBackward {
 public:
  OneBackward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, Trial* trial,
              std::vector<at::Tensor>& results, Workspace& work)
      : call_(call), options_(options), in_carrier_(in_carrier), trial_(trial), results_(results), work_(work) {}

  /// Returns false, before any effect, if the stock engine must run the call.
  bool run() {
    const Stopwatch watch;
    if (!collect(call_, options_, to_the_bit_, work_)) return false;
    capture::Resume resume = start_of(call_, work_.collected);
    Found found = look_up(resume);
    if (backs_off_ && !found && !may_capture(resume)) return leave_for(FallbackReason::DoesNotPay);
    if (found && reads_gradient(found, resume) == ReadsGradient::IsSaved) return leave_for(FallbackReason::SavesGradient);
    if (found && is_stocks_turn(found)) return false;
    stats_recorder().add_collect_ns(watch.ns());
    stats_recorder().add_nodes(work_.collected.calls.size());
    stats_recorder().add_backward();
    HC_LOG(Perf, Info, "{} nodes collected and looked up in {:.1f} us", work_.collected.calls.size(), watch.us());
    if (found) HC_LOG(Cache, Debug, "hit: graph {}, {} nodes", found.plan->graph().id, work_.collected.calls.size());

    struct CountResult {  // also when a hook throws
      const bool& has_captured;
      ~CountResult() { has_captured ? stats_recorder().add_miss() : stats_recorder().add_hit(); }
    } count_result{has_captured_};
    if (options_.nan_guard) nan_guard_.emplace(work_.collected);
    if (needs_carrier(found)) {
      in_carrier_([&] {
        const hooks::ThreadState at_start;
        thread_state_ = &at_start;
        publish_nodes(work_.collected, call_.roots.size() == 1);
        run_on_streams(std::move(resume), std::move(found));
      });
    } else {
      const c10::AutoGradMode no_grad(false);
      std::optional<hooks::ThreadState> at_start;  // a capture also runs traceable custom Functions
      if (!found) thread_state_ = &at_start.emplace();
      run_on_streams(std::move(resume), std::move(found));
    }
    return true;
  }

 private:
  bool leave_for(FallbackReason reason) const {
    if (backs_off_) Pause::of_thread().left_one();
    record_fallback(reason);
    return false;
  }

  bool is_stocks_turn(const Found& found) {
    constexpr size_t kFewNodes = 64;
    if (trial_ == nullptr) return false;
    const bool may_be_slower = backs_off_ && !to_the_bit_ && work_.collected.calls.size() <= kFewNodes && !work_.collected.stream;
    if (!trial_->is_stocks_turn(&*found.variant, may_be_slower)) return false;
    record_fallback(FallbackReason::NotFaster);
    return true;
  }

  // A gradient that shares memory with a .grad must be read in the stock engine's order, so `found` falls back to the plan as captured.
  ReadsGradient reads_gradient(Found& found, const capture::Resume& resume) const {
    const ReadsGradient reads = engine::reads_gradient(*found.plan, work_.collected, resume);
    if (reads == ReadsGradient::FlowsIn && !found.plan->is_as_captured()) {
      HC_LOG(Fusion, Info, "graph {}: without kernels this time, since memory of a gradient that is added to may flow in",
             found.plan->graph().id);
      found.use_plan_as_captured();
    }
    return reads;
  }

  Found look_up(const capture::Resume& resume) {
    work_.resumed.clear();
    capture::append_resume_facts(resume, work_.resumed);
    if (!entry_) {
      const auto key = cache::view_of(work_.collected.key);
      structure_ = key.hash;
      entry_ = Captures::of_process().find(key);
      if (!entry_) return {};
    }
    Found found = entry_->find(start(resume), {work_.collected.facts, work_.resumed}, work_.bindings, work_.env);
    if (found) Payoff::of_process().hit(found.variant->use(now_), work_.collected.calls.size());
    return found;
  }

  // User code expects a graph task around it, and a traced node asks the graph task which outputs are needed.
  bool needs_carrier(const Found& found) const {
    if (work_.collected.has_hooks || work_.collected.has_opaque) return true;
    return found ? found.plan->has_barriers() : !call_.outputs.empty();
  }

  // A miss at the start of a cached structure is always captured: Options::limit bounds these captures. Reaching the limit is logged once.
  bool may_capture(const capture::Resume& resume) {
    const Start where = start(resume);
    if (where == Start() && entry_) return !entry_->is_at_its_limit(options_.limit);
    const cache::KeyHash seen = where == Start() ? structure_ : structure_of_rest(structure_, where, work_.resumed);
    return Payoff::of_process().may_capture(seen, now_, [&] { return Captures::of_process().room(options_); });
  }

  void run_on_streams(capture::Resume resume, Found found) {
    if (!work_.collected.stream) return run_from(std::move(resume), std::move(found));
    hooks::NodeStreams streams = streams_of(work_.collected);
    begin(streams, work_.collected, resume);
    streams_ = &streams;
    run_from(std::move(resume), std::move(found));
    join(streams, work_.collected);
  }

  // Replays what was captured, and captures the rest. After a boundary whose results changed, looks up the rest of the backward.
  void run_from(capture::Resume resume, Found found) {
    for (;;) {
      if (!found) return capture_rest(std::move(resume));
      RECORD_FUNCTION("hindcast::run", std::vector<c10::IValue>());
      const Stopwatch watch;
      const bool has_many_streams = streams_ && streams_->has_inputs();
      if (has_many_streams) require_plan_as_captured(found);
      const auto& compiled = found.variant->compiled;
      const bool by_segments = !compiled.empty() && !has_many_streams;
      const EnteredPlan recorded = enter_recorded_plan(found, work_.bindings, options_, has_many_streams);
      auto next =
          engine::run({*found.plan, by_segments ? &compiled : nullptr, work_.bindings, work_.env, work_.collected, std::move(resume),
                       call_.keep_graph, results_, observer(), recorded.get(), options_.cuda_graph_bytes, streams_, thread_state_});
      stats_recorder().add_run_ns(watch.ns());
      HC_LOG(Perf, Info, "graph {} replayed in {:.1f} us", found.plan->graph().id, watch.us());
      if (!next) return;
      resume = std::move(*next);
      found = resume.as_collected ? look_up(resume) : Found{};
      if (found && reads_gradient(found, resume) == ReadsGradient::IsSaved) return capture_rest(std::move(resume), /*may_record=*/false);
    }
  }

  // `may_record` false: the nodes run without being traced.
  void capture_rest(capture::Resume resume, bool may_record = true) {
    RECORD_FUNCTION("hindcast::trace", std::vector<c10::IValue>());
    const Stopwatch watch;
    has_captured_ = true;
    const Start where = start(resume);
    // run() has already asked whether a capture from the start pays.
    const bool is_welcome = may_record && resume.as_collected && (!backs_off_ || where == Start() || may_capture(resume));
    const FactsAtCapture facts(work_.collected, collect_options(options_), resume, is_welcome);
    const bool is_new_structure = entry_ == nullptr;
    if (is_new_structure) entry_ = std::make_shared<Entry>(work_.collected.unloads);
    NextCapture next{.allowed = facts.can_record && may_record};
    if (next.allowed) next = entry_->plan_capture(work_.collected, facts.origins(), where, facts.values(), options_);
    if (may_record) log_misses(work_.collected, is_new_structure, resume, next.misses);
    if (next.allowed && backs_off_) Payoff::of_process().captured(work_.collected.calls.size());

    struct TellPayoff {  // also when a hook throws
      const OneBackward& of;
      const bool tells;
      const int exceptions = std::uncaught_exceptions();
      ~TellPayoff() {
        if (tells) Payoff::of_process().traced(of.structure_, std::uncaught_exceptions() > exceptions);
      }
    } tell_payoff{*this, backs_off_ && where == Start()};
    capture::ReplayCheck check;
    auto graph = capture::trace({work_.collected, std::move(resume), facts.collected_origins, next.dynamic, call_.keep_graph, next.allowed,
                                 results_, tell_opaque_node, [] { stats_recorder().add_hook_calls(1); }, options_.verify ? &check : nullptr,
                                 observer(), streams_, thread_state_});
    stats_recorder().add_trace_ns(watch.ns());
    HC_LOG(Perf, Info, "captured in {:.1f} us", watch.us());
    if (!graph) return;  // capturing was not allowed: the nodes ran untraced
    const bool has_room = keep({std::move(graph), cache::view_of(work_.collected.key), entry_, where, facts, std::move(next.dynamic),
                                std::move(check), to_the_bit_, now_},
                               options_);
    if (!has_room && backs_off_) Payoff::of_process().too_large(structure_);
  }

  static Start start(const capture::Resume& resume) { return {resume.call, resume.stage}; }
  capture::Observer* observer() { return nan_guard_ ? &*nan_guard_ : nullptr; }

  const capture::BackwardCall& call_;
  const Options& options_;
  const Carrier& in_carrier_;
  Trial* const trial_;
  std::vector<at::Tensor>& results_;
  Workspace& work_;
  const bool backs_off_ = backs_off(options_);
  const bool to_the_bit_ = wants_equal_bits(options_);
  const uint64_t now_ = Payoff::of_process().next();  // this call's number
  cache::KeyHash structure_;
  std::shared_ptr<Entry> entry_;
  bool has_captured_ = false;              // a lookup missed
  std::optional<NanGuard> nan_guard_;      // logs in its destructor, also when the backward throws
  hooks::NodeStreams* streams_ = nullptr;  // nullptr if all nodes are on the CPU
  const hooks::ThreadState* thread_state_ = nullptr;
};

}  // namespace

bool backward(const capture::BackwardCall& call, const Options& options, const Carrier& in_carrier, Trial* trial,
              std::vector<at::Tensor>& results) {
  Pause& pause = Pause::of_thread();
  if (backs_off(options) && pause.skips()) {
    record_fallback(FallbackReason::DoesNotPay);
    return false;
  }
  BorrowedWorkspace work;
  if (!OneBackward(call, options, in_carrier, trial, results, *work).run()) return false;
  pause.took_one();
  return true;
}

}  // namespace hindcast::engine
