#include "engine/run.h"

#include "capture/backward/collect.h"
#include "capture/backward/facts.h"
#include "capture/backward/libtorch_access.h"
#include "base/check.h"
#include "base/format.h"
#include "base/log.h"
#include "codegen/plan/execute.h"
#include "engine/counters/stats_recorder.h"
#include "engine/saved_gradients.h"
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
  explicit Runner(RunRequest& request) : request_(request), plan_(request.plan), collected_(request.collected), streams_(request.streams) {
    slots_.swap(collected_.tensors);
    slots_.resize(plan_.slot_count());
    leaf_requests_.resize(plan_.leaf_count());
    if (request.observer) tell_start(*request.observer);
    uint32_t slot = plan_.first_resume_slot();
    for (at::Tensor& tensor : request.resume.values) slots_[slot++] = std::move(tensor);
    for (auto& [input, tensor] : request.resume.buffers) slots_[slot++] = std::move(tensor);
    user_code_ran_ = request.resume.call != 0 || request.resume.stage != Stage::NodeStart;
    next_buffer_event_ = static_cast<uint32_t>(request.resume.buffers.size());  // streams know of these
    request.resume = {};
    if (StepClock::is_wanted_for(plan_)) clock_.emplace(plan_);
    // Who entered the recordings asked for all this (engine/record.cpp), but for a log that was switched on since.
    recorded_ = clock_ || request.compiled || request.observer || crosses_streams() ? nullptr : request.recorded;
    special_ = clock_ || recorded_ || request.compiled || plan_.leaf_count() != 0 || crosses_streams();
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
      if (crosses_streams()) [[unlikely]]
        follow_streams(step.instr);
      if (!run_event(step, event)) return std::move(resume_);
      i += event.kind == EventKind::Release ? event.releases : 1;
    }
    if (clock_) clock_->end_step(slots_);
    return std::nullopt;
  }

 private:
  // False: the rest is left, for `resume_`.
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

  // Steps that are not run as they stand: in a segment that the user's compiler has, or of a kernel that writes to leaves.
  bool run(const Step& step) override {
    if (clock_) [[unlikely]]
      clock_->start(step, slots_);
    if (crosses_streams()) {
      follow_streams(step.instr);
      if (step.kind == InstrKind::AddGrads) return add_across_streams(step), true;
    }
    if (request_.compiled && in_compiled_segment(step)) return true;
    if (recorded_ && in_recorded_region(step)) return true;
    if (step.leaves.empty() || !step.call_op->writes_leaves()) return false;
    run_to_leaves(step);
    return true;
  }

  void tell_start(capture::Observer& observer) const {
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

  // ---- streams, where gradients go from one to another: the steps are those of the capture, in its order. Where a run goes on behind
  // user code, the node that it goes on with was entered before

  bool crosses_streams() const { return streams_ != nullptr && streams_->has_inputs(); }

  Node& consumer_of(uint32_t input) const {
    const auto behind = std::upper_bound(collected_.calls.begin(), collected_.calls.end(), input,
                                         [](uint32_t one, const capture::NodeCall& call) { return one < call.first_input; });
    return *std::prev(behind)->node;
  }

  // What the node whose turn is over left at the inputs of others.
  void give_gradients(uint32_t end) {
    for (; next_buffer_event_ < end; ++next_buffer_event_) {
      const auto& [input, value] = plan_.backward().buffer_events[next_buffer_event_];
      const uint32_t slot = plan_.slot_of(value);
      if (slot != kNoSlot && slots_[slot].defined()) streams_->put(input, slots_[slot], consumer_of(input));
    }
  }

  void add_across_streams(const Step& step) {
    const auto& arrivals = plan_.backward().buffer_events;
    const capture::ValueId sum = plan_.graph().instrs[step.instr].outputs[0];
    uint32_t at = next_buffer_event_;
    while (at < arrivals.size() && !(arrivals[at].value == sum)) ++at;
    HC_CHECK(at < arrivals.size(), "a sum of gradients waits nowhere");
    give_gradients(at);
    ++next_buffer_event_;
    const uint32_t input = arrivals[at].input;
    at::Tensor waiting = take(step.inputs[0]);
    waiting = streams_->add(input, std::move(waiting), take(step.inputs[1]), step.sum_is_view, consumer_of(input));
    if (step.outputs[0] != kNoSlot) slots_[step.outputs[0]] = std::move(waiting);
  }

  // Up to an instr that is about to run: a plan may have no steps for the starts of nodes.
  void follow_streams(uint32_t instr) {
    const auto& instrs = plan_.graph().instrs;
    for (; next_instr_ <= instr; ++next_instr_) {
      if (plan_.backward().is(instrs[next_instr_], EventKind::NodeStart)) enter_node(instrs[next_instr_]);
    }
  }

  void enter_node(const capture::Instr& start) {
    give_gradients(plan_.backward().event_of(start).buffer_events);
    const capture::NodeCall& call = collected_.calls[start.origin];
    streams_->enter(call.node->stream());
    for (uint32_t i = 0; i < start.inputs.size(); ++i) {
      const uint32_t slot = plan_.slot_of(start.inputs[i]);
      if (slot != kNoSlot) streams_->wait(call.first_input + i, slots_[slot]);
    }
  }

  // Behind user code.
  void enter_again() const {
    if (streams_) [[unlikely]]
      streams_->enter_again();
  }

  bool state_is_changed() const { return request_.thread_state && request_.thread_state->is_changed(); }
  void end_user_code() const {
    if (request_.thread_state) request_.thread_state->restore_if_changed();
  }

  // The user's function runs in place of the segment's first ATen step; the others only give back what they used last.
  bool in_compiled_segment(const Step& step) {
    const auto& segments = plan_.segments();
    while (segment_ < segments.size() && step.instr >= segments[segment_].last_instr) {
      ++segment_;
      segment_done_ = false;
    }
    if (segment_ == segments.size()) return false;
    const SegmentFunction& function = (*request_.compiled)[segment_];
    if (!function) return false;
    if (!segment_done_) {
      const auto& segment = segments[segment_];
      if (user_code_ran_ && !is_as_collected(segment)) return false;  // op by op, up to the node that was changed
      std::vector<at::Tensor> inputs;
      for (const uint32_t slot : segment.inputs) inputs.push_back(slots_[slot]);
      std::vector<at::Tensor> outputs = function(std::move(inputs), request_.bindings);
      if (outputs.size() != segment.outputs.size()) {
        throw std::invalid_argument(
            base::format("hindcast: a compiled segment returned {} tensors, expected {}", outputs.size(), segment.outputs.size()));
      }
      for (size_t i = 0; i < outputs.size(); ++i) slots_[segment.outputs[i]] = std::move(outputs[i]);
      segment_done_ = true;
    }
    give_back(step);
    return true;
  }

  // What the step would have used for the last time.
  void give_back(const Step& step) {
    for_each_slot(step, [&](SlotUse use) {
      if (use.last) slots_[use.slot].reset();
    });
  }

  // A launch at the region's first step does all of them. Its events follow one by one, with what the launch made for them.
  bool in_recorded_region(const Step& step) {
    const auto number = static_cast<uint32_t>(&step - plan_.steps().data());
    if (number >= region_end_) {
      RecordedRegion* const region = recorded_->region_at(number);
      if (region == nullptr) return false;
      if (!recorded_->run(*region, {plan_, slots_, request_.env, collected_}, request_.recorded_bytes, delivered_)) return false;
      region_end_ = region->region().last;
      next_delivered_ = 0;
    }
    give_back(step);
    return true;
  }

  // Null: the event reads its slot.
  Delivered* delivered_to(const Step& step) {
    if (next_delivered_ == delivered_.size() || &plan_.steps()[delivered_[next_delivered_].step] != &step) return nullptr;
    return &delivered_[next_delivered_++];
  }

  at::Tensor take_gradient(const Step& step) {
    Delivered* const delivered = delivered_to(step);
    return delivered == nullptr ? take(step.inputs[0]) : std::move(delivered->tensor);
  }

  bool are_as_collected(uint32_t call, uint32_t end) const {
    for (; call < end; ++call) {
      if (!capture::is_as_collected(collected_, call)) return false;
    }
    return true;
  }

  bool is_as_collected(const codegen::PlannedSegment& segment) const {
    const auto& instrs = plan_.graph().instrs;
    for (uint32_t i = segment.first_instr; i < segment.last_instr; ++i) {
      if (plan_.backward().is(instrs[i], EventKind::NodeStart) && !capture::is_as_collected(collected_, instrs[i].origin)) return false;
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
    if (Delivered* const delivered = delivered_to(step)) {
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
      enter_again();
      if ((call.hooks & capture::kPostHooks) == 0) end_user_code();
    }
  }

  // A leaf that has no gradient yet keeps the buffer that it is given; what has one is locked while the kernel adds to it. Who
  // waits for more than one lock could wait forever: a leaf that another thread is busy with accumulates behind the kernel.
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
      } else if (!request_.observer) {  // an observer is shown what is added
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
    enter_again();
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
    enter_again();
    torch::autograd::validate_outputs(node.next_edges(), outputs,
                                      [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
    return finish_barrier(step, event, Stage::AfterCall, std::move(outputs), std::move(kept));
  }

  // Looked for at most once in a run, and where somebody else may reach a result's memory.
  bool returned_a_gradient(const variable_list& results) {
    return std::any_of(results.begin(), results.end(), [&](const at::Tensor& result) {
      if (!result.defined() || !result.has_storage() || is_held_once(result)) return false;
      if (!leaf_gradients_) leaf_gradients_.emplace(plan_, collected_);
      return leaf_gradients_->may_be_memory_of(result);
    });
  }

  // Puts a boundary's results into their slots if they are what the rest of the plan was made for, and no `.grad` that kernels would read
  // too early or too late. A node's own hooks may change what its formula reads, and the thread's state that it sees; of nodes to come,
  // those are looked at here whose kernels run together.
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

  // Everything that the rest of the backward needs is in slots: gradients waiting at inputs of nodes still to come, and
  // their saved tensors.
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
  capture::Collected& collected_;
  hooks::NodeStreams* const streams_;
  codegen::Slots slots_;
  std::vector<LeafRequest> leaf_requests_;  // by leaf of the plan's kernels
  capture::Facts facts_;
  capture::Resume resume_;
  std::optional<StepClock> clock_;
  std::optional<LeafGradients> leaf_gradients_;
  bool user_code_ran_ = false;
  bool special_ = false;                             // some steps are not run as they stand
  uint32_t next_instr_ = 0, next_buffer_event_ = 0;  // of the graph: streams were followed so far
  size_t segment_ = 0;                               // of the plan, when a user's compiler made functions
  bool segment_done_ = false;
  RecordedPlan* recorded_ = nullptr;
  std::vector<Delivered> delivered_;  // by the region that was launched last
  size_t next_delivered_ = 0;
  uint32_t region_end_ = 0;
};

}  // namespace

std::optional<capture::Resume> run(RunRequest request) { return Runner(request).run(); }

}  // namespace hindcast::engine
