#include "engine/call/run.h"

#include "base/check.h"
#include "base/format.h"
#include "base/log.h"
#include "capture/backward/collect.h"
#include "capture/backward/facts.h"
#include "capture/backward/libtorch_access.h"
#include "codegen/plan/execute.h"
#include "engine/call/compiled_segments.h"
#include "engine/call/graph_replay.h"
#include "engine/call/saved_gradients.h"
#include "engine/call/stream_follower.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/step_times.h"
#include "hooks/accumulate_grad.h"
#include "hooks/current_node.h"
#include "hooks/run_hooks.h"
#include "hooks/thread_state.h"

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>

namespace hindcast::engine {
namespace {

using capture::EventKind;
using capture::InstrKind;
using capture::Stage;
using codegen::kNoSlot;
using codegen::LeafRequest;
using codegen::SlotUse;
using codegen::Step;
using torch::autograd::Node;
using torch::autograd::variable_list;

class Runner final : private codegen::StepRunner {
 public:
  explicit Runner(RunRequest& request)
      : request_(request),
        plan_(request.plan),
        is_timed_(StepClock::is_wanted_for(plan_)),
        collected_(request.collected),
        // `request.streams` already has the gradients that arrived before the run.
        streams_(plan_, collected_, request.streams, slots_, static_cast<uint32_t>(request.resume.buffers.size())),
        compiled_(plan_, request.compiled, request.bindings, collected_),
        recorded_(plan_, may_replay() ? request.recorded : nullptr, request.recorded_bytes) {
    slots_.swap(collected_.tensors);
    slots_.resize(plan_.slot_count());
    leaf_requests_.resize(plan_.leaf_count());
    if (request.observer) notify_start(*request.observer);
    uint32_t slot = plan_.first_resume_slot();
    for (at::Tensor& tensor : request.resume.values) slots_[slot++] = std::move(tensor);
    for (auto& [input, tensor] : request.resume.buffers) slots_[slot++] = std::move(tensor);
    user_code_ran_ = request.resume.call != 0 || request.resume.stage != Stage::NodeStart;
    request.resume = {};
    if (is_timed_) clock_.emplace(plan_);
    special_ = clock_ || recorded_ || compiled_ || plan_.leaf_count() != 0 || streams_.is_needed();
  }

  std::optional<capture::Resume> run() {
    std::optional<codegen::BelowAutograd> below;
    const std::vector<Step>& steps = plan_.steps();
    for (uint32_t i = 0; i < steps.size();) {
      const Step& step = steps[i];
      if (step.kind != InstrKind::Event) {
        if (!below) below.emplace();
        i = codegen::execute(plan_, i, slots_, request_.env, special_ ? this : nullptr);
        continue;
      }
      if (clock_) [[unlikely]]
        clock_->start(step, slots_);
      const EventStep& event = plan_.event_of(step);
      const bool runs_others_code =
          event.kind == EventKind::Accumulate || event.kind == EventKind::Hook || event.kind == EventKind::CallNode;
      if (runs_others_code) below.reset();
      if (streams_.is_needed()) [[unlikely]]
        streams_.follow(step.instr);
      if (!run_event(step, event)) return std::move(resume_);
      i += event.kind == EventKind::Release ? event.releases : 1;
    }
    if (clock_) clock_->end_step(slots_);
    return std::nullopt;
  }

 private:
  // enter_recorded_plan() (engine/call/record.cpp) has checked all this; only the log may have been switched on since.
  bool may_replay() const { return !is_timed_ && !compiled_ && !request_.observer && !streams_.is_needed(); }

  // Returns false if the run stops here; `resume_` then says where to continue.
  bool run_event(const Step& step, const EventStep& event) {
    switch (event.kind) {
      case EventKind::NodeStart:
        return start_node(step, event);
      case EventKind::Hook:
        return run_hook(step, event);
      case EventKind::CallNode:
        return call_node(step, event);
      case EventKind::Accumulate:
        accumulate(step, event);
        return true;
      case EventKind::Capture:
        request_.results[event.result] = take_gradient(step);
        see_gradient(step, request_.results[event.result]);
        return true;
      case EventKind::Release:
        for (const uint32_t call : plan_.released(event)) release(collected_.calls[call]);
        return true;
    }
    return true;
  }

  // Returns true for steps that it runs in a special way: inside a segment of the user's compiler, inside a CUDA graph, across streams, or
  // by a kernel that writes to leaf tensors.
  bool run(const Step& step) override {
    if (clock_) [[unlikely]]
      clock_->start(step, slots_);
    if (streams_.is_needed()) {
      streams_.follow(step.instr);
      if (step.kind == InstrKind::AddGrads) return streams_.add(step), true;
    }
    if (compiled_ && compiled_.run(step, slots_, user_code_ran_)) return true;
    if (recorded_ && recorded_.run(step, {plan_, slots_, request_.env, collected_})) return true;
    if (step.leaves.empty() || !step.call_op->writes_leaves()) return false;
    run_to_leaves(step);
    return true;
  }

  void notify_start(capture::Observer& observer) const {
    const auto inputs = plan_.backward().tensor_inputs();
    observer.on_start(request_.resume, plan_.shared_backward(), &request_.env);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined() && slots_[i].defined()) observer.on_input(inputs[i], slots_[i]);
    }
  }
  void see_gradient(const Step& step, const at::Tensor& gradient) const {
    if (request_.observer) [[unlikely]]
      request_.observer->on_gradient(step.origin, plan_.graph().instrs[step.instr].inputs[0], gradient);
  }

  void forget_waiting(const Step& step) {
    for (const uint32_t slot : plan_.waited_last(step)) slots_[slot].reset();
  }

  Node& node_of(const Step& step) { return *collected_.calls[step.origin].node; }

  at::Tensor take(SlotUse use) { return codegen::take(slots_, use); }

  bool state_is_changed() const { return request_.thread_state && request_.thread_state->is_changed(); }
  void end_user_code() const {
    if (request_.thread_state) request_.thread_state->restore_if_changed();
  }

  at::Tensor take_gradient(const Step& step) {
    Delivered* const delivered = recorded_.delivered_to(step);
    return delivered == nullptr ? take(step.inputs[0]) : std::move(delivered->tensor);
  }

  bool are_as_collected(uint32_t call, uint32_t end) const {
    for (; call < end; ++call) {
      if (!capture::is_as_collected(collected_, call)) return false;
    }
    return true;
  }

  bool start_node(const Step& step, const EventStep& event) {
    if (user_code_ran_ && !are_as_collected(step.origin, event.end_call)) {
      leave(step, Stage::NodeStart, {}, {});
      resume_.as_collected = false;
      return false;
    }
    for (const SlotUse use : step.inputs) {
      if (use.last) slots_[use.slot].reset();  // the formula does not read it
    }
    forget_waiting(step);
    return true;
  }

  void release(const capture::NodeCall& call) {
    for (uint32_t i = call.first_tensor; i < call.first_tensor + call.tensor_count; ++i) {
      if (!plan_.flows_on(i)) slots_[i].reset();
    }
    if (!request_.keep_graph) {
      call.node->will_release_variables();
      call.node->release_variables();
    }
  }

  void accumulate(const Step& step, const EventStep& event) {
    auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(node_of(step));
    const auto& call = collected_.calls[step.origin];
    if (call.hooks & capture::kPostAccumulateHooks) {
      user_code_ran_ = true;
      stats_recorder().add_hook_calls(1);
    }
    if (Delivered* const delivered = recorded_.delivered_to(step)) {
      if (!delivered->is_added) hooks::accumulate_grad(leaf, capture::node_mutex(leaf), std::move(delivered->tensor), false);
      return;
    }
    at::Tensor gradient = take(step.inputs[0]);
    if (event.leaf != kNoLeaf) {
      LeafRequest& answer = leaf_requests_[event.leaf];
      if (answer.state == LeafRequest::State::Added) return;
      if (answer.state == LeafRequest::State::Filled) gradient = std::move(answer.gradient);
    }
    see_gradient(step, gradient);
    hooks::accumulate_grad(leaf, capture::node_mutex(leaf), std::move(gradient), (call.hooks & capture::kPostHooks) != 0);
    if (call.hooks & capture::kPostAccumulateHooks) {
      streams_.enter_again();
      if ((call.hooks & capture::kPostHooks) == 0) end_user_code();
    }
  }

  // A leaf tensor without a gradient keeps the buffer that the kernel fills; one with a gradient is locked while the kernel adds to it.
  // Only tries the locks, since waiting for several could deadlock: a leaf tensor in use by another thread accumulates after the kernel.
  void run_to_leaves(const Step& step) {
    c10::SmallVector<std::unique_lock<std::mutex>, 8> locks;
    const std::span requests = std::span(leaf_requests_).subspan(step.first_leaf, step.leaves.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Step::Leaf& asked = step.leaves[i];
      auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*collected_.calls[asked.origin].node);
      std::unique_lock lock(capture::node_mutex(leaf), std::try_to_lock);
      if (!lock || leaf.variable.grad_fn() || !leaf.variable.requires_grad()) continue;
      const at::Tensor& grad = leaf.variable.grad();
      if (!grad.defined()) {
        if (!asked.takes_result) requests[i].state = LeafRequest::State::BufferWanted;
      } else if (!request_.observer) {  // an observer must see the added gradient
        requests[i] = {LeafRequest::State::AddWanted, grad};
        locks.push_back(std::move(lock));
      }
    }
    step.call_op->run_to_leaves(step, slots_, request_.env, requests);
  }

  bool run_hook(const Step& step, const EventStep& event) {
    Node& node = node_of(step);
    user_code_ran_ = true;
    stats_recorder().add_hook_calls(1);
    variable_list gradients, kept;
    const size_t own = step.inputs.size() - event.kept_inputs;
    for (size_t i = 0; i < own; ++i) gradients.push_back(take(step.inputs[i]));
    for (size_t i = own; i < step.inputs.size(); ++i) kept.push_back(take(step.inputs[i]));
    Stage stage = Stage::AfterTensorPre;
    switch (event.stage) {
      case capture::HookStage::TensorPre:
        gradients = hooks::run_tensor_pre_hooks(node, std::move(gradients));
        break;
      case capture::HookStage::Pre:
        gradients = hooks::run_pre_hooks(node, std::move(gradients));
        stage = Stage::AfterPre;
        break;
      case capture::HookStage::Post:
        gradients = hooks::run_post_hooks(node, std::move(gradients), kept, collected_.calls[step.origin].hooks & capture::kPostHooks);
        stage = Stage::AfterPost;
        break;
    }
    streams_.enter_again();
    return finish_barrier(step, event, stage, std::move(gradients), {});
  }

  bool call_node(const Step& step, const EventStep& event) {
    Node& node = node_of(step);
    user_code_ran_ = true;
    stats_recorder().add_opaque_calls(1);
    variable_list gradients, kept;
    const bool keeps_inputs = (collected_.calls[step.origin].hooks & capture::kPostHooks) != 0;
    for (const SlotUse use : step.inputs) {
      gradients.push_back(take(use));
      if (keeps_inputs) kept.push_back(gradients.back());
    }
    if (!request_.keep_graph) node.will_release_variables();
    const hooks::CurrentNode current(node);
    variable_list outputs = node(std::move(gradients));
    streams_.enter_again();
    torch::autograd::validate_outputs(node.next_edges(), outputs,
                                      [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
    return finish_barrier(step, event, Stage::AfterCall, std::move(outputs), std::move(kept));
  }

  // True if user code may have returned the memory of a leaf tensor's `.grad`. These are looked up at most once per run, and only if
  // something else can reach a result's memory.
  bool returned_a_gradient(const variable_list& results) {
    return std::any_of(results.begin(), results.end(), [&](const at::Tensor& result) {
      if (!result.defined() || !result.has_storage() || is_held_once(result)) return false;
      if (!leaf_gradients_) leaf_gradients_.emplace(plan_, collected_);
      return leaf_gradients_->may_be_memory_of(result);
    });
  }

  // Puts a boundary's results into their slots if the rest of the plan is valid for them, and if none is a `.grad`, which kernels would
  // read too early or too late. Otherwise stops the run. A node's own hooks may change what its formula reads, and the thread state; so may
  // they change later nodes, of which those up to event.end_call are checked here.
  bool finish_barrier(const Step& step, const EventStep& event, Stage stage, variable_list results, variable_list kept) {
    const bool formula_follows = stage == Stage::AfterTensorPre || stage == Stage::AfterPre;
    const bool node_ends = stage == Stage::AfterPost || (stage == Stage::AfterCall && node_of(step).post_hooks().empty());
    if (node_ends) end_user_code();
    if ((!node_ends && state_is_changed()) || !are_as_collected(formula_follows ? step.origin : step.origin + 1, event.end_call)) {
      leave(step, stage, std::move(results), std::move(kept));
      resume_.as_collected = false;
      return false;
    }
    const capture::Instr& instr = plan_.graph().instrs[step.instr];
    const auto& expected = plan_.backward().event_of(instr).expected;
    facts_.clear();
    for (const at::Tensor& result : results) capture::append_tensor_facts(result, facts_);
    bool same = results.size() == step.outputs.size() && facts_.size() == expected.size();
    for (size_t i = 0; same && i < facts_.size(); ++i) {
      same = facts_[i] == (expected[i].expr ? request_.env.integer(*expected[i].expr) : expected[i].value);
    }
    if (!same || (!plan_.is_as_captured() && returned_a_gradient(results))) {
      stats_recorder().add_segment_guard_failure();
      leave(step, stage, std::move(results), std::move(kept));
      return false;
    }
    forget_waiting(step);
    for (size_t i = 0; i < results.size(); ++i) {
      if (request_.observer && results[i].defined()) request_.observer->on_input(instr.outputs[i], results[i]);
      if (step.outputs[i] != kNoSlot) slots_[step.outputs[i]] = std::move(results[i]);
    }
    return true;
  }

  // Stops the run. Slots have everything that the rest of the backward needs: gradients waiting at inputs of later nodes, and saved
  // tensors.
  void leave(const Step& step, Stage stage, variable_list values, variable_list kept) {
    const auto& graph = plan_.backward();
    resume_.call = step.origin;
    resume_.stage = stage;
    resume_.values = std::move(values);
    if (stage == Stage::AfterCall) {
      for (at::Tensor& input : kept) resume_.values.push_back(std::move(input));
    }
    std::map<uint32_t, capture::ValueId> waiting;
    for (uint32_t e = 0; e < graph.event_of(graph.instrs[step.instr]).buffer_events; ++e) {
      const auto& event = graph.buffer_events[e];
      if (event.value.defined()) {
        waiting[event.input] = event.value;
      } else {
        waiting.erase(event.input);
      }
    }
    for (const auto& [input, value] : waiting) {
      HC_CHECK(plan_.slot_of(value) != kNoSlot, "a gradient that waits is not kept");
      resume_.buffers.emplace_back(input, slots_[plan_.slot_of(value)]);
    }
    slots_.resize(plan_.first_resume_slot());
    collected_.tensors.swap(slots_);
  }

  RunRequest& request_;
  const BackwardPlan& plan_;
  const bool is_timed_;  // for the log
  capture::Collected& collected_;
  codegen::Slots slots_;
  StreamFollower streams_;
  CompiledSegments compiled_;
  GraphReplay recorded_;
  std::vector<LeafRequest> leaf_requests_;  // by leaf number
  capture::Facts facts_;
  capture::Resume resume_;
  std::optional<StepClock> clock_;
  std::optional<LeafGradients> leaf_gradients_;
  bool user_code_ran_ = false;
  bool special_ = false;  // run(step) must see each step
};

}  // namespace

std::optional<capture::Resume> run(RunRequest request) { return Runner(request).run(); }

}  // namespace hindcast::engine
