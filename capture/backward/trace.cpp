#include "capture/backward/trace.h"

#include "capture/backward/copy_slices.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/packed_args.h"
#include "capture/recorder/recorder.h"
#include "capture/graph/same_bits.h"
#include "capture/backward/typed_collectors.h"
#include "capture/backward/libtorch_access.h"
#include "base/check.h"
#include "base/log.h"
#include "hooks/accumulate_grad.h"
#include "hooks/add_gradients.h"
#include "hooks/run_hooks.h"
#include "hooks/traceable.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>

namespace hindcast::capture {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// A gradient on its way: the real tensor and the value that it is.
struct Traced {
  at::Tensor real;
  ValueId value;
};

// Facts of one node, sorted by what they describe; numbers are indices into the facts.
struct NodeFacts {
  std::vector<std::vector<uint32_t>> inputs;   // sizes in each input's metadata
  std::vector<std::vector<uint32_t>> tensors;  // sizes of each collected tensor
  std::vector<uint32_t> sizes, scalars;
  std::vector<uint32_t> piece;  // of a write to a view: the geometry of base and view
};

variable_list reals(const std::vector<Traced>& list) {
  variable_list result;
  for (const Traced& item : list) result.push_back(item.real);
  return result;
}

using Warnings = std::vector<c10::Warning>;

// While a formula is traced: passes on what is warned of, and notes it in `given`. A replay warns again of what a recorded
// operator does, but not of what the formula finds itself; a node whose formula does that is called as itself.
class FormulaWarnings final : private c10::WarningHandler {
 public:
  FormulaWarnings(Recorder& recorder, Warnings& given) : recorder_(recorder), given_(given), here_(this) {}

 private:
  void process(const c10::Warning& warning) override {
    if (Recorder::current() == &recorder_) recorder_.mark_untraceable("its formula warns");  // there is none inside of an operator
    outer_.process(warning);
    given_.push_back(warning);
  }

  Recorder& recorder_;
  Warnings& given_;
  c10::WarningHandler& outer_ = *c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard here_;
};

// While a node is called whose formula was tried: passes on what it had not warned of then. (What it warned of then cannot be
// held back instead: what a process warns of once does not come a second time.)
class FurtherWarnings final : private c10::WarningHandler {
 public:
  explicit FurtherWarnings(Warnings given) : given_(std::move(given)), here_(this) {}

 private:
  void process(const c10::Warning& warning) override {
    const auto same = [&](const c10::Warning& one) {
      return one.source_location().line == warning.source_location().line && one.msg() == warning.msg();
    };
    const auto found = std::find_if(given_.begin(), given_.end(), same);
    if (found == given_.end()) return outer_.process(warning);
    given_.erase(found);
  }

  Warnings given_;
  c10::WarningHandler& outer_ = *c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard here_;
};

class Tracer {
 public:
  explicit Tracer(TraceRequest& request)
      : request_(request),
        collected_(request.collected),
        graph_(std::make_shared<Graph>()),
        recorder_(*graph_),
        recording_(request.record),
        buffers_(collected_.input_total) {}

  std::shared_ptr<Graph> run() {
    Resume& resume = request_.resume;
    if (request_.observer) request_.observer->on_start(resume, recording_ ? graph_ : nullptr, nullptr);
    if (recording_) {
      make_inputs();
    } else {
      for (at::Tensor& tensor : resume.values) resumed_.push_back({std::move(tensor), {}});
      for (auto& [input, tensor] : resume.buffers) buffers_[input].real = std::move(tensor);
    }
    for (uint32_t i = resume.call; i < collected_.calls.size(); ++i) {
      const bool resumed = i == resume.call && resume.stage != Stage::NodeStart;
      run_node(i, resumed ? resume.stage : Stage::NodeStart);
    }
    if (!recording_) return nullptr;
    graph_->values.shrink_to_fit();
    graph_->instrs.shrink_to_fit();
    graph_->buffer_events.shrink_to_fit();
    return graph_;
  }

 private:
  // ---- inputs of the graph

  bool dynamic() const { return !request_.dynamic.int_hints.empty() || !request_.dynamic.float_hints.empty(); }

  ExprId size_of_fact(uint32_t fact) {
    const auto& symbols = request_.dynamic.collected;
    const int32_t symbol = symbols.empty() ? kStaticFact : symbols[fact];
    return symbol == kStaticFact ? graph_->symbols->integer(collected_.facts[fact]) : ints_[symbol];
  }

  void make_inputs() {
    for (size_t i = 0; i < request_.dynamic.int_hints.size(); ++i) {
      const int64_t hint = request_.dynamic.int_hints[i];
      ints_.push_back(request_.dynamic.is_size[i] ? graph_->symbols->size_symbol(hint) : graph_->symbols->int_symbol(hint));
    }
    for (const double hint : request_.dynamic.float_hints) floats_.push_back(graph_->symbols->float_symbol(hint));
    graph_->first_call = request_.resume.call;
    graph_->stage = request_.resume.stage;
    for (const NodeCall& call : collected_.calls) graph_->node_names.push_back(call.node->name());
    graph_->tensor_inputs.resize(collected_.tensors.size());
    sort_facts();

    // The resumed facts: places first, then tensor by tensor a meta word, the sizes, and what the layout class adds.
    uint32_t fact = 1 + static_cast<uint32_t>(request_.resume.buffers.size());
    const auto take = [&](const at::Tensor& tensor) -> Traced {
      if (!tensor.defined()) {
        ++fact;
        graph_->resume_inputs.push_back({});
        return {};
      }
      std::vector<ExprId> sizes;
      const bool plain = is_plain(tensor);
      Facts own;
      append_tensor_facts(tensor, own);
      for (int64_t d = 0; d < tensor.dim(); ++d) {
        const int32_t symbol = plain && !request_.dynamic.resumed.empty() ? request_.dynamic.resumed[fact + 1 + d] : kStaticFact;
        sizes.push_back(symbol == kStaticFact ? graph_->symbols->integer(tensor.size(d)) : ints_[symbol]);
      }
      fact += static_cast<uint32_t>(own.size());
      const ValueId id = recorder_.new_value(tensor, std::move(sizes));
      graph_->resume_inputs.push_back(id);
      keep_input(id, tensor);
      return {tensor, id};
    };
    Resume& resume = request_.resume;
    for (const at::Tensor& tensor : resume.values) resumed_.push_back(take(tensor));
    for (const auto& [input, tensor] : resume.buffers) {
      buffers_[input] = take(tensor);
      note_buffer(input);
    }
    resume.values.clear();
    resume.buffers.clear();
  }

  void sort_facts() {
    facts_.resize(collected_.calls.size());
    for (uint32_t i = 0; i < collected_.calls.size(); ++i) facts_[i].inputs.resize(collected_.calls[i].input_count);
    for (uint32_t f = 0; f < request_.origins.size(); ++f) {
      const FactOrigin& origin = request_.origins[f];
      NodeFacts& facts = facts_[origin.call];
      switch (origin.kind) {
        case FactKind::InputSize:
          facts.inputs[origin.field].push_back(f);
          break;
        case FactKind::TensorMeta:
          facts.tensors.emplace_back();
          break;
        case FactKind::TensorSize:
          facts.tensors.back().push_back(f);
          break;
        case FactKind::SavedSize:
          (collected_.calls[origin.call].writes_to_view() && origin.field < kPieceFields ? facts.piece : facts.sizes).push_back(f);
          break;
        case FactKind::FloatScalar:
        case FactKind::ExactScalar:
          facts.scalars.push_back(f);
          break;
        case FactKind::TensorStride:
          break;
      }
    }
  }

  // ---- one node

  void run_node(uint32_t index, Stage stage) {
    const NodeCall& call = collected_.calls[index];
    Node& node = *call.node;
    call_ = index;
    if (recording_ && stage == Stage::NodeStart) add_instr(InstrKind::NodeStart);

    std::vector<Traced> inputs, outputs;
    if (stage == Stage::NodeStart) {
      for (uint32_t i = 0; i < call.input_count; ++i) {
        inputs.push_back(std::move(buffers_[call.first_input + i]));
        buffers_[call.first_input + i] = {};
        if (inputs.back().value.defined()) note_buffer(call.first_input + i);
      }
      if (recording_) graph_->instrs.back().inputs = values(inputs);
      if (call.has_captures && call.needed) capture_results(index, inputs);
      tensor_pre_hooks(node, call, inputs);
    } else {
      take_resumed(node, stage, inputs, outputs);
    }
    if (stage <= Stage::AfterTensorPre) {
      if (call.has_captures && !call.needed) capture_results(index, inputs);
      if (!call.needed) return;
      if (!node.pre_hooks().empty()) boundary_hooks(HookStage::Pre, inputs, [&] { return hooks::run_pre_hooks(node, reals(inputs)); });
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
    if (stage <= Stage::AfterCall && !node.post_hooks().empty()) post_hooks(node, outputs, kept, had_post_hooks);
    kept.clear();
    release(node, call);
    distribute(call, outputs);
  }

  void take_resumed(Node& node, Stage stage, std::vector<Traced>& inputs, std::vector<Traced>& outputs) {
    const size_t outputs_given = stage == Stage::AfterCall ? node.next_edges().size() : stage == Stage::AfterPost ? resumed_.size() : 0;
    for (size_t i = 0; i < resumed_.size(); ++i) (i < outputs_given ? outputs : inputs).push_back(std::move(resumed_[i]));
    resumed_.clear();
  }

  void tensor_pre_hooks(Node& node, const NodeCall& call, std::vector<Traced>& inputs) {
    if (node.tensor_pre_hooks().empty() && node.retains_grad_hooks().empty()) return;
    if (recording_ && (call.hooks & kRetainGradHooks) == 0 && call.traceable_hooks != 0 &&
        hooks::traceable_fingerprint(node) == call.traceable_hooks) {
      if (inline_hooks(node, inputs)) return;
    }
    boundary_hooks(HookStage::TensorPre, inputs, [&] { return hooks::run_tensor_pre_hooks(node, reals(inputs)); });
  }

  // False: a hook did what cannot be recorded, or threw; nothing was. It has no state, so that calling it again, for real,
  // is no second effect.
  bool inline_hooks(Node& node, std::vector<Traced>& inputs) {
    recorder_.begin_node(call_);
    try {
      const Recorder::Scope scope(recorder_);
      std::vector<Traced> outputs = traced(hooks::run_tensor_pre_hooks(node, stand_ins(inputs)));
      if (!recorder_.untraceable()) {
        inputs = std::move(outputs);
        return true;
      }
    } catch (const std::exception& error) {
      recorder_.mark_untraceable(error.what());
    }
    recorder_.drop_node();
    HC_LOG(Hooks, Warning, "{} (NodeCall {}): a hook marked traceable is called every time instead: {}", node.name(), call_ + 1,
           *recorder_.untraceable());
    return false;
  }

  // Runs user hooks on the real gradients; whatever comes back is a new value, even where it is the same tensor today.
  template <class Run>
  void boundary_hooks(HookStage stage, std::vector<Traced>& list, Run run) {
    if (request_.on_hooks) request_.on_hooks();
    variable_list results = run();
    record_boundary(InstrKind::Hook, stage, list, {}, results, [&](size_t i) { return i < list.size() ? list[i].value : ValueId{}; });
    set(list, std::move(results));
  }

  void post_hooks(Node& node, std::vector<Traced>& outputs, const std::vector<Traced>& inputs, bool had_hooks) {
    if (request_.on_hooks) request_.on_hooks();
    variable_list results = hooks::run_post_hooks(node, reals(outputs), reals(inputs), had_hooks);
    record_boundary(InstrKind::Hook, HookStage::Post, outputs, inputs, results,
                    [&](size_t i) { return i < outputs.size() ? outputs[i].value : ValueId{}; });
    set(outputs, std::move(results));
  }

  void set(std::vector<Traced>& list, variable_list results) {
    list.assign(results.size(), {});
    for (size_t i = 0; i < results.size(); ++i) {
      list[i].real = std::move(results[i]);
      if (recording_) list[i].value = graph_->instrs.back().outputs[i];
    }
  }

  // ---- calling a node

  std::vector<Traced> apply(Node& node, const NodeCall& call, std::vector<Traced> inputs, const std::vector<Traced>& kept) {
    if (call.kind == NodeKind::Accumulate && inputs.size() == 1) {  // else the node raises the error of a hook that returned another number
      accumulate(node, std::move(inputs), !kept.empty());
      return {};
    }
    Warnings warned;
    if (recording_ && call.kind != NodeKind::Opaque) {
      if (auto outputs = trace_formula(node, call, inputs, warned)) return std::move(*outputs);
    }
    const FurtherWarnings further(std::move(warned));
    return call_node(node, call, std::move(inputs));
  }

  void accumulate(Node& node, std::vector<Traced> inputs, bool has_post_hooks) {
    auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(node);
    see_gradient(call_, inputs[0]);
    if (recording_) {
      Instr& instr = add_instr(InstrKind::Accumulate);
      instr.inputs = {inputs[0].value};
      instr.post_accumulate_hooks = leaf.tensor_post_acc_grad_hooks() != nullptr;
      keep_result(inputs[0]);
    }
    if (request_.on_hooks && leaf.tensor_post_acc_grad_hooks() != nullptr) request_.on_hooks();
    hooks::accumulate_grad(leaf, node_mutex(node), std::move(inputs[0].real), has_post_hooks);
  }

  std::vector<Traced> call_node(Node& node, const NodeCall& call, std::vector<Traced> inputs) {
    if (recording_ && request_.on_opaque) request_.on_opaque(node.name(), why_opaque(call));
    const auto inputs_kept = recording_ ? values(inputs) : capture::ValueIds{};
    for (const Traced& input : inputs) keep_result(input);
    variable_list gradients;
    for (Traced& input : inputs) gradients.push_back(std::move(input.real));
    variable_list results = node(std::move(gradients));
    torch::autograd::validate_outputs(node.next_edges(), results,
                                      [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
    std::vector<Traced> outputs;
    if (!recording_) {
      for (at::Tensor& result : results) outputs.push_back({std::move(result), {}});
      return outputs;
    }
    Instr& instr = add_instr(InstrKind::CallNode);
    instr.inputs = inputs_kept;
    for (uint32_t e = 0; e < results.size(); ++e) {
      const at::Tensor& result = results[e];
      std::vector<ExprId> sizes;
      if (result.defined()) {
        const auto* input = e < call.edge_count ? metadata_facts(call, e) : nullptr;
        for (int64_t d = 0; d < result.dim(); ++d) {
          const bool known = input && input->size() == static_cast<size_t>(result.dim());
          sizes.push_back(known ? size_of_fact((*input)[d]) : graph_->symbols->integer(result.size(d)));
        }
      }
      add_expected(result, sizes);
      graph_->instrs.back().outputs.push_back(result.defined() ? recorder_.new_value(result, sizes) : recorder_.undefined_value());
      keep_input(graph_->instrs.back().outputs.back(), result);
    }
    for (size_t e = 0; e < results.size(); ++e) outputs.push_back({std::move(results[e]), graph_->instrs.back().outputs[e]});
    return outputs;
  }

  // Facts of the input metadata that edge `e` leads to; null where it leads nowhere.
  const std::vector<uint32_t>* metadata_facts(const NodeCall& call, uint32_t e) const {
    const EdgeTarget& edge = collected_.edges[call.first_edge + e];
    return edge.call == kNoCall ? nullptr : &facts_[edge.call].inputs[edge.input_nr];
  }

  // Runs the node's functional form on stand-ins. Nullopt: it cannot be traced; `inputs` are as they were and nothing was
  // recorded. The recorder stops a formula before its first effect on anything that it did not make itself, so that calling
  // the node afterwards is no second effect; an error of a user's formula comes again, from there. What was warned of is `warned`.
  std::optional<std::vector<Traced>> trace_formula(Node& node, const NodeCall& call, std::vector<Traced>& inputs, Warnings& warned) {
    for (const Traced& input : inputs) {
      if (input.real.defined() && !is_plain(input.real)) return refuse(node, "a gradient is not a plain strided tensor");
    }
    recorder_.begin_node(call_);
    try {
      const auto write = call.writes_to_view() ? write_of(node) : nullptr;
      const PackedNode packed = pack_node(write ? *write : node);
      if (!packed.function) return refuse(node, "its function was bound by somebody else");
      recorder_.set_user_formula(packed.function->is_custom);
      const auto arguments = substitute(packed, call, substitution(call));
      const Recorder::Scope scope(recorder_);
      const FormulaWarnings warnings(recorder_, warned);
      const auto formula = [&](variable_list gradients) { return packed.function->apply(std::move(gradients), arguments); };
      variable_list results =
          write ? on_piece(piece_of(node), stand_ins(inputs)[0], needed_results(node), formula) : formula(stand_ins(inputs));
      validate(node, call, results);
      std::vector<Traced> outputs = traced(std::move(results));
      if (!recorder_.untraceable()) return outputs;
    } catch (const std::exception& error) {
      recorder_.mark_untraceable(error.what());
    }
    recorder_.drop_node();
    return refuse(node, *recorder_.untraceable());
  }

  // The carrier's graph task then knows which results of the write's node are needed.
  static NodePtr write_of(Node& node) {
    const std::lock_guard lock(node_mutex(node));
    NodePtr write = written_by(node);
    if (!write) HC_UNSUPPORTED("its node was released");
    static_cast<torch::autograd::CopySlices&>(node).update_exec_info();
    return write;
  }

  static std::vector<bool> needed_results(const Node& node) {
    std::vector<bool> needed;
    for (uint32_t i = 0; i < node.num_outputs(); ++i) needed.push_back(node.task_should_compute_output(i));
    return needed;
  }

  PieceOfBase piece_of(const Node& node) {
    const auto& slices = static_cast<const torch::autograd::CopySlices&>(node);
    auto fact = facts_[call_].piece.begin();
    const auto take = [&](int64_t count) {
      std::vector<c10::SymInt> list;
      for (; count > 0; --count) list.push_back(graph_->symbols->make_symint(size_of_fact(*fact++)));
      return list;
    };
    const auto geometry = [&](int64_t rank) -> PieceOfBase::Geometry {
      auto sizes = take(rank), strides = take(rank);
      return {std::move(sizes), std::move(strides), take(1)[0]};
    };
    auto base = geometry(slices.base.dim());
    return {std::move(base), geometry(slices.view.dim())};
  }

  std::optional<std::vector<Traced>> refuse(Node& node, const std::string& reason) {
    HC_LOG(Fallbacks, Info, "{} (NodeCall {}) is called as itself: {}", node.name(), call_ + 1, reason);
    refused_because_ = reason;
    return std::nullopt;
  }

  std::string why_opaque(const NodeCall& call) const {
    if (call.kind != NodeKind::Opaque) return refused_because_;
    return call.opaque_reason ? call.opaque_reason : "the recorder has no dispatch key in this process";
  }

  Substitution substitution(const NodeCall& call) {
    Substitution result;
    const NodeFacts& facts = facts_[call_];
    result.tensor = [this, &call, &facts](uint32_t slot) {
      const at::Tensor& real = collected_.tensors[call.first_tensor + slot];
      if (!real.defined()) return at::Tensor();
      ValueId& id = graph_->tensor_inputs[call.first_tensor + slot];
      if (!id.defined()) {
        std::vector<ExprId> sizes;
        for (const uint32_t fact : facts.tensors[slot]) sizes.push_back(size_of_fact(fact));
        id = recorder_.new_value(real, std::move(sizes));
        keep_input(id, real);
      }
      return recorder_.stand_in(real, id);
    };
    if (!dynamic() || call.kind != NodeKind::Typed) return result;
    result.size = [this, &facts](uint32_t k, int64_t value) {
      if (k >= facts.sizes.size() || collected_.facts[facts.sizes[k]] != value) HC_UNSUPPORTED("packed sizes differ from those collected");
      return graph_->symbols->make_symint(size_of_fact(facts.sizes[k]));
    };
    result.scalar = [this, &facts](uint32_t k, double value) -> std::optional<c10::SymFloat> {
      if (k >= facts.scalars.size() || collected_.facts[facts.scalars[k]] != std::bit_cast<int64_t>(value))
        HC_UNSUPPORTED("packed scalars differ from those collected");
      const int32_t symbol = request_.dynamic.collected[facts.scalars[k]];
      if (symbol == kStaticFact) return std::nullopt;
      return graph_->symbols->make_symfloat(floats_[symbol]);
    };
    return result;
  }

  // What the engine does with a node's results before they flow on: sum to size, cast, check. Under the recorder.
  void validate(Node& node, const NodeCall& call, variable_list& results) {
    auto metadata = torch::autograd::collect_input_metadata(node.next_edges());
    if (dynamic()) {
      for (uint32_t e = 0; e < call.edge_count && e < metadata.size(); ++e) {
        const auto* facts = metadata_facts(call, e);
        if (!facts || !metadata[e]) continue;
        auto& shape = metadata[e]->mutable_shape_as_dim_vector();
        for (size_t d = 0; d < shape.size(); ++d) shape[d] = graph_->symbols->make_symint(size_of_fact((*facts)[d]));
      }
    }
    torch::autograd::validate_outputs(metadata, results,
                                      [&](const std::string& text) { return "Function " + node.name() + " returned an " + text; });
  }

  variable_list stand_ins(const std::vector<Traced>& list) {
    variable_list result;
    for (const Traced& item : list) result.push_back(item.real.defined() ? recorder_.stand_in(item.real, item.value) : at::Tensor());
    return result;
  }

  std::vector<Traced> traced(variable_list list) {
    std::vector<Traced> result;
    for (at::Tensor& tensor : list) {
      if (!tensor.defined()) {
        result.push_back({});
        continue;
      }
      const ValueId id = recorder_.value_of(tensor);
      const TracingTensor* stand_in = TracingTensor::get(tensor);
      result.push_back({stand_in ? stand_in->real : tensor, id});
    }
    return result;
  }

  // ---- after the node

  void release(Node& node, const NodeCall& call) {
    for (uint32_t i = 0; i < call.tensor_count; ++i) collected_.tensors[call.first_tensor + i].reset();
    if (call.kind == NodeKind::Accumulate) return;
    if (recording_) add_instr(InstrKind::Release);
    if (!request_.keep_graph) node.release_variables();
  }

  void distribute(const NodeCall& call, std::vector<Traced>& outputs) {
    for (uint32_t e = 0; e < call.edge_count && e < outputs.size(); ++e) {
      const EdgeTarget& edge = collected_.edges[call.first_edge + e];
      if (edge.call == kNoCall || !outputs[e].real.defined()) continue;
      const uint32_t input = collected_.calls[edge.call].first_input + edge.input_nr;
      Traced& waiting = buffers_[input];
      if (!waiting.real.defined()) {
        waiting = std::move(outputs[e]);
      } else {
        const ValueId left = waiting.value, right = outputs[e].value;
        const bool is_view = recording_ && graph_->values[left.index].is_view;
        waiting.real = hooks::add_gradients(std::move(waiting.real), std::move(outputs[e].real), is_view);
        if (recording_) {
          const ValueId sum = recorder_.new_value(waiting.real, graph_->values[left.index].sizes);
          Instr& instr = add_instr(InstrKind::AddGrads);
          instr.inputs = {left, right};
          instr.outputs = {sum};
          waiting.value = sum;
        }
      }
      outputs[e] = {};
      note_buffer(input);
    }
  }

  void capture_results(uint32_t index, const std::vector<Traced>& inputs) {
    for (const GradCapture& capture : collected_.captures) {
      if (capture.call != index || capture.input_nr >= inputs.size()) continue;  // a hook may have returned fewer
      request_.results[capture.output] = inputs[capture.input_nr].real;
      see_gradient(index, inputs[capture.input_nr]);
      if (!recording_) continue;
      keep_result(inputs[capture.input_nr]);
      Instr& instr = add_instr(InstrKind::Capture);
      instr.inputs = {inputs[capture.input_nr].value};
      instr.result = capture.output;
    }
  }

  // ---- recording

  Instr& add_instr(InstrKind kind) {
    Instr& instr = graph_->instrs.emplace_back();
    instr.kind = kind;
    instr.call = call_;
    instr.buffer_events = static_cast<uint32_t>(graph_->buffer_events.size());
    return instr;
  }

  void keep_input(ValueId value, const at::Tensor& real) {
    if (!real.defined()) return;
    if (request_.check) request_.check->inputs.emplace_back(value, is_plain(real) ? clone_exactly(real) : real);
    if (request_.observer) request_.observer->on_input(value, real);
  }
  void keep_result(const Traced& item) {
    if (request_.check && item.real.defined() && is_plain(item.real))
      request_.check->results.emplace_back(item.value, clone_exactly(item.real));
  }

  void see_gradient(uint32_t call, const Traced& gradient) {
    if (request_.observer) request_.observer->on_gradient(call, gradient.value, gradient.real);
  }

  void note_buffer(uint32_t input) {
    if (recording_) graph_->buffer_events.push_back({input, buffers_[input].value});
  }

  static ValueIds values(const std::vector<Traced>& list) {
    ValueIds result;
    for (const Traced& item : list) result.push_back(item.value);
    return result;
  }

  template <class InputOf>
  void record_boundary(InstrKind kind, HookStage stage, const std::vector<Traced>& list, const std::vector<Traced>& kept,
                       const variable_list& results, InputOf input_of) {
    if (!recording_) return;
    Instr& instr = add_instr(kind);
    instr.stage = stage;
    instr.inputs = values(list);
    for (const Traced& item : kept) instr.inputs.push_back(item.value);
    instr.kept_inputs = static_cast<uint32_t>(kept.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const at::Tensor& result = results[i];
      std::vector<ExprId> sizes;
      if (result.defined()) {
        const ValueId input = input_of(i);
        const bool same_shape = input.defined() && list[i].real.defined() && list[i].real.sizes() == result.sizes();
        if (same_shape) {
          sizes = graph_->values[input.index].sizes;
        } else {
          for (const int64_t size : result.sizes()) sizes.push_back(graph_->symbols->integer(size));
        }
      }
      add_expected(result, sizes);
      const ValueId id = result.defined() ? recorder_.new_value(result, std::move(sizes)) : recorder_.undefined_value();
      graph_->instrs.back().outputs.push_back(id);
      keep_input(id, result);
    }
    for (const Traced& item : list) keep_result(item);
  }

  void add_expected(const at::Tensor& result, const std::vector<ExprId>& sizes) {
    Facts facts;
    append_tensor_facts(result, facts);
    auto& expected = graph_->instrs.back().expected;
    const bool plain = result.defined() && is_plain(result);
    for (size_t f = 0; f < facts.size(); ++f) {
      FactPattern pattern{facts[f], std::nullopt};
      if (plain && f >= 1 && f <= sizes.size() && !graph_->symbols->is_constant(sizes[f - 1])) pattern.expr = sizes[f - 1];
      expected.push_back(pattern);
    }
  }

  TraceRequest& request_;
  Collected& collected_;
  std::shared_ptr<Graph> graph_;
  Recorder recorder_;
  const bool recording_;
  std::vector<Traced> buffers_;  // per flat node input
  std::vector<Traced> resumed_;
  std::vector<NodeFacts> facts_;
  std::vector<ExprId> ints_, floats_;
  std::string refused_because_;  // of the last node that could not be traced
  uint32_t call_ = 0;
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

std::shared_ptr<Graph> trace(TraceRequest request) { return Tracer(request).run(); }

}  // namespace hindcast::capture
