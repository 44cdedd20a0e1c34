#include "capture/backward/trace.h"

#include "base/first_line.h"
#include "base/log.h"
#include "capture/backward/fact_exprs.h"
#include "capture/backward/formula_tracer.h"
#include "capture/backward/gradient_buffers.h"
#include "capture/backward/libtorch_access.h"
#include "capture/backward/program_node.h"
#include "capture/backward/trace_writer.h"
#include "hooks/traceable.h"
#include "hooks/accumulate_grad.h"
#include "hooks/current_node.h"
#include "hooks/run_hooks.h"
#include "hooks/thread_state.h"

#include <torch/csrc/autograd/engine.h>

namespace hindcast::capture {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class Tracer {
 public:
  explicit Tracer(TraceRequest& request)
      : request_(request),
        collected_(request.collected),
        recording_(request.record),
        writer_(request),
        facts_(request, writer_.symbols()),
        streams_(request.streams),
        buffers_(writer_, collected_.input_total, streams_ && streams_->has_inputs() ? streams_ : nullptr),
        formula_(request, writer_, facts_) {}

  std::shared_ptr<BackwardGraph> run() {
    const Resume& resume = request_.resume;
    if (request_.observer) request_.observer->on_start(resume, writer_.share(), nullptr);
    take_what_flows_in();
    for (uint32_t i = resume.call; i < collected_.calls.size(); ++i) {
      const bool resumed = i == resume.call && resume.stage != Stage::NodeStart;
      run_node(i, resumed ? resume.stage : Stage::NodeStart);
    }
    if (request_.check && incoming_.have_moved()) request_.check->is_written = true;
    return writer_.finish();
  }

 private:
  void take_what_flows_in() {
    Resume& resume = request_.resume;
    // The resumed facts: places first, then per tensor a meta word, the sizes, and the facts of its layout class.
    uint32_t fact = 1 + static_cast<uint32_t>(resume.buffers.size());
    if (request_.check && !collected_.calls.empty()) {  // empty: nothing is left to do
      const NodeCall& root = collected_.calls.front();
      for (uint32_t i = 0; i < root.tensor_count; ++i) incoming_.add(collected_.tensors.at(root.first_tensor + i));
    }
    for (at::Tensor& tensor : resume.values) resumed_.push_back(flows_in(std::move(tensor), fact));
    for (auto& [input, tensor] : resume.buffers) buffers_.put(input, flows_in(std::move(tensor), fact));
    resume.values.clear();
    resume.buffers.clear();
  }

  // Advances `fact` past the facts of the tensor.
  Traced flows_in(at::Tensor tensor, uint32_t& fact) {
    if (!recording_) return {std::move(tensor), {}};
    ValueId id;
    if (tensor.defined()) id = writer_.recorder().new_value(tensor, facts_.resumed_sizes(tensor, fact));
    Facts own;
    append_tensor_facts(tensor, own);
    fact += static_cast<uint32_t>(own.size());
    writer_.graph().inputs.push_back(id);
    writer_.keep_input(id, tensor);
    if (request_.check) incoming_.add(tensor);
    return {std::move(tensor), id};
  }

  // ---- one node

  struct EndOfUserCode {
    const hooks::ThreadState* state;
    ~EndOfUserCode() {
      if (state) state->restore_if_changed();
    }
  };

  void run_node(uint32_t index, Stage stage) {
    const NodeCall& call = collected_.calls[index];
    Node& node = *call.node;
    writer_.begin_node(index);
    const EndOfUserCode end{request_.thread_state};
    if (streams_ && streams_->has_inputs()) streams_->enter(node.stream());
    if (recording_ && stage == Stage::NodeStart) writer_.add_event(EventKind::NodeStart);

    std::vector<Traced> inputs, outputs;
    if (stage == Stage::NodeStart) {
      inputs = buffers_.take(call);
      if (recording_) writer_.graph().instrs.edit_back().inputs = values(inputs);
      if (call.has_captures && call.needed) capture_results(index, inputs);
      tensor_pre_hooks(node, call, inputs);
    } else {
      take_resumed(node, stage, inputs, outputs);
    }
    if (stage <= Stage::AfterTensorPre) {
      if (call.has_captures && !call.needed) capture_results(index, inputs);
      if (!call.needed) return;
      if (!node.pre_hooks().empty()) run_hooks(HookStage::Pre, inputs, {}, [&] { return hooks::run_pre_hooks(node, reals(inputs)); });
    }
    const bool had_post_hooks = !node.post_hooks().empty();
    std::vector<Traced> kept;
    if (stage <= Stage::AfterPre) {
      if (had_post_hooks) kept = inputs;
      if (!request_.keep_graph) node.will_release_variables();
      outputs = apply(node, call, std::move(inputs), kept);
    } else if (stage == Stage::AfterCall) {
      kept = std::move(inputs);
    }
    if (stage <= Stage::AfterCall && !node.post_hooks().empty())
      run_hooks(HookStage::Post, outputs, kept, [&] { return hooks::run_post_hooks(node, reals(outputs), reals(kept), had_post_hooks); });
    kept.clear();
    release(node, call);
    buffers_.distribute(collected_, call, outputs);
  }

  void take_resumed(const Node& node, Stage stage, std::vector<Traced>& inputs, std::vector<Traced>& outputs) {
    const size_t outputs_given = stage == Stage::AfterCall ? node.next_edges().size() : stage == Stage::AfterPost ? resumed_.size() : 0;
    for (size_t i = 0; i < resumed_.size(); ++i) (i < outputs_given ? outputs : inputs).push_back(std::move(resumed_[i]));
    resumed_.clear();
  }

  void release(Node& node, const NodeCall& call) {
    for (uint32_t i = 0; i < call.tensor_count; ++i) collected_.tensors[call.first_tensor + i].reset();
    if (call.kind == NodeKind::Accumulate) return;
    if (recording_) writer_.release_node();
    if (!request_.keep_graph) node.release_variables();
  }

  void capture_results(uint32_t index, const std::vector<Traced>& inputs) {
    for (const GradCapture& capture : collected_.captures) {
      if (capture.call != index || capture.input_nr >= inputs.size()) continue;  // a hook may have returned fewer
      const Traced& gradient = inputs[capture.input_nr];
      request_.results[capture.output] = gradient.real;
      writer_.see_gradient(gradient);
      if (!recording_) continue;
      writer_.keep_result(gradient);
      writer_.add_event(EventKind::Capture, {gradient.value}).result = capture.output;
    }
  }

  // ---- hooks

  void tensor_pre_hooks(Node& node, const NodeCall& call, std::vector<Traced>& inputs) {
    if (node.tensor_pre_hooks().empty() && node.retains_grad_hooks().empty()) return;
    if (recording_ && (call.hooks & kRetainGradHooks) == 0 && call.traceable_hooks != 0 &&
        hooks::traceable_fingerprint(node) == call.traceable_hooks) {
      if (inline_hooks(node, inputs)) return;
    }
    run_hooks(HookStage::TensorPre, inputs, {}, [&] { return hooks::run_tensor_pre_hooks(node, reals(inputs)); });
  }

  // False, with nothing recorded: a hook did what cannot be recorded, or threw. These hooks have no state, so calling them again, for real,
  // is no second effect.
  bool inline_hooks(Node& node, std::vector<Traced>& inputs) {
    Recorder& recorder = writer_.recorder();
    recorder.begin(writer_.call());
    try {
      const Recorder::Scope scope(recorder);
      std::vector<Traced> outputs = traced(recorder, hooks::run_tensor_pre_hooks(node, stand_ins(recorder, inputs)));
      if (!recorder.refusal()) {
        inputs = std::move(outputs);
        return true;
      }
    } catch (const std::exception& error) {
      recorder.refuse(base::first_line(error));
    }
    recorder.rollback();
    HC_LOG(Hooks, Warning, "{} (NodeCall {}): a hook marked traceable is called every time instead: {}", node.name(), writer_.call() + 1,
           *recorder.refusal());
    return false;
  }

  // Runs user hooks on the real gradients; each result is a new value, even if it is the same tensor this time.
  template <class Run>
  void run_hooks(HookStage stage, std::vector<Traced>& list, const std::vector<Traced>& kept, Run run) {
    if (request_.on_hooks) request_.on_hooks();
    Versions given;
    if (request_.check) {
      for (const Traced& item : list) {
        writer_.keep_result(item);  // before a hook writes to it
        given.add(item.real);
      }
      for (const Traced& item : kept) given.add(item.real);
    }
    variable_list results = run();
    if (request_.check && given.have_moved()) request_.check->is_written = true;
    if (streams_) streams_->enter_again();
    writer_.add_hooks(stage, list, kept, results);
    list.assign(results.size(), {});
    for (size_t i = 0; i < results.size(); ++i) {
      list[i].real = std::move(results[i]);
      if (recording_) list[i].value = writer_.graph().instrs.back().outputs[i];
    }
  }

  // ---- calling a node

  std::vector<Traced> apply(Node& node, const NodeCall& call, std::vector<Traced> inputs, const std::vector<Traced>& kept) {
    // If a hook returned another number of gradients, the node raises the error below.
    if (call.kind == NodeKind::Accumulate && inputs.size() == 1) {
      accumulate(node, std::move(inputs[0]), !kept.empty());
      return {};
    }
    Warnings warned;
    if (recording_ && call.kind != NodeKind::Opaque && !state_is_changed()) {
      if (auto outputs = formula_.run(node, call, inputs, warned)) return std::move(*outputs);
    }
    const FurtherWarnings further(std::move(warned));
    return call_node(node, call, std::move(inputs));
  }

  void accumulate(Node& node, Traced gradient, bool has_post_hooks) {
    auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(node);
    writer_.see_gradient(gradient);
    if (recording_) {
      writer_.add_accumulate(gradient.value, leaf.tensor_post_acc_grad_hooks() != nullptr);
      writer_.keep_result(gradient);
    }
    if (request_.on_hooks && leaf.tensor_post_acc_grad_hooks() != nullptr) request_.on_hooks();
    hooks::accumulate_grad(leaf, node_mutex(node), std::move(gradient.real), has_post_hooks);
    if (streams_) streams_->enter_again();
  }

  std::vector<Traced> call_node(Node& node, const NodeCall& call, std::vector<Traced> inputs) {
    if (recording_ && request_.on_opaque && call.opaque_reason != kRunsItself) request_.on_opaque(node.name(), why_opaque(call));
    ValueIds read = values(inputs);
    for (const Traced& input : inputs) writer_.keep_result(input);
    Versions given;
    variable_list gradients;
    for (Traced& input : inputs) {
      if (request_.check) given.add(input.real);
      gradients.push_back(std::move(input.real));
    }
    const hooks::CurrentNode current(node);
    variable_list results = node(std::move(gradients));
    if (request_.check && given.have_moved()) request_.check->is_written = true;
    if (streams_) streams_->enter_again();
    torch::autograd::validate_outputs(node.next_edges(), results,
                                      [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
    if (recording_) writer_.add_event(EventKind::CallNode, std::move(read));
    std::vector<Traced> outputs;
    for (uint32_t e = 0; e < results.size(); ++e) {
      const ValueId id = recording_ ? writer_.add_boundary_result(results[e], result_sizes(call, e, results[e])) : ValueId{};
      outputs.push_back({std::move(results[e]), id});
    }
    return outputs;
  }

  // A result has the sizes of the input that it flows into, if the ranks are equal.
  std::vector<ExprId> result_sizes(const NodeCall& call, uint32_t e, const at::Tensor& result) {
    std::vector<ExprId> sizes;
    if (!result.defined()) return sizes;
    const auto* input = e < call.edge_count ? facts_.metadata(call, e) : nullptr;
    if (input && input->size() == static_cast<size_t>(result.dim())) return facts_.sizes(*input);
    for (int64_t d = 0; d < result.dim(); ++d) sizes.push_back(writer_.symbols().integer(result.size(d)));
    return sizes;
  }

  // Whether hooks of the running node left another thread state, under which the node may do something else than in a step without them.
  bool state_is_changed() const { return request_.thread_state && request_.thread_state->is_changed(); }

  std::string why_opaque(const NodeCall& call) const {
    if (call.kind == NodeKind::Opaque) return call.opaque_reason ? call.opaque_reason : "the recorder has no dispatch key in this process";
    return state_is_changed() ? "its hooks left another state of the thread, as autocast or grad mode" : formula_.refusal();
  }

  TraceRequest& request_;
  Collected& collected_;
  const bool recording_;
  TraceWriter writer_;
  const FactExprs facts_;
  hooks::NodeStreams* const streams_;
  GradientBuffers buffers_;
  FormulaTracer formula_;
  std::vector<Traced> resumed_;
  Versions incoming_;  // only with a check
};

}  // namespace

void append_resume_facts(const Resume& resume, Facts& facts, std::vector<FactOrigin>* origins) {
  uint32_t field = 0;
  const auto place = [&](size_t number) {
    facts.push_back(static_cast<int64_t>(number));
    if (origins) origins->push_back({FactKind::ExactScalar, kRootGradient, 0, 0});
  };
  place(resume.values.size());
  for (const auto& [input, tensor] : resume.buffers) place(input);
  for (const at::Tensor& tensor : resume.values)
    append_tensor_facts(tensor, facts, origins, {FactKind::TensorMeta, kRootGradient, field++, 0});
  for (const auto& [input, tensor] : resume.buffers)
    append_tensor_facts(tensor, facts, origins, {FactKind::TensorMeta, kRootGradient, field++, 0});
}

std::shared_ptr<BackwardGraph> trace(TraceRequest request) { return Tracer(request).run(); }

}  // namespace hindcast::capture
