// The backward of a traced function: LibTorch's engine runs over the nodes that autograd made, and what it calls is recorded.

#include "capture/function/function_trace.h"

#include "base/interpreter_error.h"
#include "capture/function/history.h"
#include "capture/function/places.h"
#include "capture/function/recorder_scope.h"
#include "capture/graph/accumulation.h"
#include "capture/ops/op_facts.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_map>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::variable_list;

namespace {

/// Passes the tangents to the nodes that made the results. As gradients of the engine's own root they would all come from the stream of the
/// first one, and the engine would report those that cross to another stream to the allocator: stand-ins have no memory. This node has no
/// stream, so each tangent comes from the current stream of its device.
struct TangentsNode final : torch::autograd::Node {
  explicit TangentsNode(const at::Tensor& start) { add_input_metadata(start); }
  variable_list apply(variable_list&&) override { return tangents; }
  std::string name() const override { return "hindcast::Tangents"; }

  variable_list tangents;
};

}  // namespace

variable_list FunctionTrace::backward(const variable_list& tangents, bool create_graph) {
  begin_backward(create_graph);
  auto gradients = record_backward(tangents, create_graph, {});
  if (!gradients) {
    recorder_.refuse("reads the memory of a tensor");
    return backward_as_itself(tangents, create_graph);
  }
  // A backward of some gradients alone draws only what their nodes recompute, and a program would draw all.
  if (!recorder_.refusal() && had_saved_tensor_hooks() && draws_in_backward())
    recorder_.refuse("a checkpoint in it draws random numbers again when it recomputes");
  if (!recorder_.refusal() && tangents_.size() > 1 && !depends_on_tangents_alone())
    recorder_.refuse("a formula does not use the gradient that it is given");
  if (recorder_.refusal()) recorder_.release();
  return std::move(*gradients);
}

std::optional<variable_list> FunctionTrace::backward_for_all(const variable_list& tangents, const std::vector<bool>& flows) {
  begin_backward(/*create_graph=*/false);
  recorder_.begin_with_absent_gradients();
  // A formula that cannot be recorded throws. Otherwise it would continue eagerly, with the zeros.
  recorder_.set_continues_eagerly(false);
  std::optional<variable_list> gradients;
  try {
    gradients = record_backward(tangents, /*create_graph=*/false, flows);
  } catch (const std::exception&) {
    base::forget_interpreter_error();
    return std::nullopt;
  }
  return recorder_.refusal() || recorder_.has_mixed_gradients() || !depends_on_tangents_alone() ? std::nullopt : std::move(gradients);
}

// The caller may have written to a result, whose memory and version its stand-in shares. LibTorch would take that for a write to a view,
// and derive a new history of the stand-in from its base.
void FunctionTrace::ignore_callers_writes() const {
  const auto ignore = [](const at::Tensor& stand_in) {
    auto* const meta = stand_in.defined() ? torch::autograd::impl::get_view_autograd_meta(stand_in) : nullptr;
    if (meta != nullptr && meta->has_bw_view()) meta->set_attr_version(static_cast<uint32_t>(stand_in._version()));
  };
  std::for_each(result_stand_ins_.begin(), result_stand_ins_.end(), ignore);
  const std::vector<at::Tensor> held = recorder_.held();
  std::for_each(held.begin(), held.end(), ignore);
}

void FunctionTrace::begin_backward(bool create_graph) {
  ignore_callers_writes();
  // A second backward of the same call is recorded like the first: the program is cut back to its forward.
  graph_->instrs.truncate(forward_end_);
  if (has_backward_) recorder_.forget_derived();
  has_backward_ = true;
  drawn_up_to_ = drawn_up_to_.now();
  recorder_.begin(1);
  recorder_.set_lifts(true);
  recorder_.set_continues_eagerly(true);
  if (create_graph) recorder_.set_origin_without_gradients(2);
  whole_formulas_.put_into(result_stand_ins_);
}

std::optional<variable_list> FunctionTrace::record_backward(const variable_list& tangents, bool create_graph,
                                                            const std::vector<bool>& flows) {
  variable_list stand_ins, found;
  tangents_ = values_of_tangents(tangents, stand_ins);
  for (size_t i = 0; i < flows.size(); ++i) Recorder::mark_gradient(stand_ins[i], !flows[i]);
  gradients_.clear();
  try {
    const RecorderScope at_work(recorder_);
    found = run_engine(stand_ins, create_graph);
    // LibTorch's engine would add in place to a view that conjugates, and .grad would be one.
    const c10::AutoGradMode grad(create_graph);
    for (at::Tensor& gradient : found) {
      if (gradient.defined() && (gradient.is_conj() || gradient.is_neg())) gradient = gradient.resolve_conj().resolve_neg();
    }
  } catch (const std::exception& error) {
    if (!is_about_a_stand_in(error)) throw;
    base::forget_interpreter_error();
    return std::nullopt;
  }
  variable_list gradients;
  for (const at::Tensor& gradient : found) {
    const TracingTensor* traced = TracingTensor::get(gradient);
    if (gradient.defined() && !traced) recorder_.refuse("its backward ran on another thread, or returned a tensor from outside");
    gradients_.push_back(traced ? recorder_.value_of(gradient) : ValueId());
    if (!traced) {
      gradients.push_back(gradient);
    } else {
      gradients.push_back(Recorder::is_absent(gradient) ? at::Tensor() : without_history(traced->real));
    }
  }
  return gradients;
}

bool FunctionTrace::draws_in_backward() const {
  for (size_t i = forward_end_; i < graph_->instrs.size(); ++i) {
    const Instr& instr = graph_->instrs[i];
    if (instr.op && instr.op->hasTag(at::Tag::nondeterministic_seeded)) return true;
  }
  return false;
}

// False: a formula does not read its gradient, as that of a loss whose forward has computed the gradient. The program does not say which
// tangent such a value belongs to: if that tangent is undefined, the value would still be added. Adding zeros is allowed.
bool FunctionTrace::depends_on_tangents_alone() const {
  std::vector<bool> is_reached(graph_->values.size()), is_zero(graph_->values.size());
  for (const ValueId tangent : tangents_) {
    if (tangent.defined()) is_reached[tangent.index] = true;
  }
  bool all_are_reached = true;
  const auto ask = [&](ValueId value) {
    all_are_reached = all_are_reached && (!value.defined() || is_reached[value.index] || is_zero[value.index]);
  };
  for (size_t i = forward_end_; i < graph_->instrs.size(); ++i) {
    const Instr& instr = graph_->instrs[i];
    bool any = false;
    for_each_use(instr, [&](ValueId value) { any = any || (value.defined() && is_reached[value.index]); });
    if (any && may_be_accumulation(instr)) for_each_use(instr, ask);
    const bool makes_zeros = instr.op && facts_of(instr.op->operator_name()).has(OpFacts::Zeros);
    for (const ValueId output : instr.outputs) {
      if (!output.defined()) continue;
      is_reached[output.index] = any;
      is_zero[output.index] = makes_zeros;
    }
  }
  std::for_each(gradients_.begin(), gradients_.end(), ask);
  return all_are_reached;
}

variable_list FunctionTrace::backward_as_itself(const variable_list& tangents, bool create_graph, const std::vector<bool>& wanted) {
  ignore_callers_writes();
  recorder_.release();
  bypass_call_node();
  return run_engine(tangents, create_graph, wanted);
}

bool FunctionTrace::is_in_running_backward() const {
  const auto* const nodes = may_keep_some_ ? torch::autograd::get_current_graph_task_nodes_in_graph() : nullptr;
  if (nodes == nullptr) return false;
  const std::vector<at::Tensor> held = recorder_.held();
  return std::any_of(held.begin(), held.end(), [&](const at::Tensor& tensor) {
    const auto* const meta = torch::autograd::impl::get_autograd_meta(tensor);
    return meta != nullptr && meta->grad_fn_ && nodes->contains(meta->grad_fn_.get());
  });
}

bool FunctionTrace::would_run_more_user_code(const variable_list& tangents, const std::vector<bool>& wanted) const {
  if (!(has_users_backward_ || had_saved_tensor_hooks())) return false;
  BackwardRange whole, part;
  size_t next = 0;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].is_differentiable) continue;
    whole.from.push_back(result_stand_ins_[i]);
    if (tangents.at(next++).defined()) part.from.push_back(result_stand_ins_[i]);
  }
  for (size_t i = 0; i < primals_.size(); ++i) {
    if (!primals_[i].gradient.is_valid()) continue;
    whole.to.push_back(primals_[i].gradient);
    if (wanted.empty() || wanted[i]) part.to.push_back(primals_[i].gradient);
  }
  const bool is_all = part.from.size() == whole.from.size() && part.to.size() == whole.to.size();
  return !is_all && has_user_code_outside(whole, part);
}

std::vector<ValueId> FunctionTrace::values_of_tangents(const variable_list& tangents, variable_list& stand_ins) {
  std::vector<ValueId> values;
  size_t next = 0;
  for (const Result& result : results_) {
    if (!result.is_differentiable) continue;
    const at::Tensor& tangent = tangents.at(next++);
    values.push_back(tangent.defined() ? recorder_.new_value(tangent, graph_->values[result.value.index].sizes) : ValueId());
    stand_ins.push_back(tangent.defined() ? recorder_.stand_in(tangent.requires_grad() ? without_history(tangent) : tangent, values.back())
                                          : at::Tensor());
  }
  return values;
}

// Returns gradients by primal.
variable_list FunctionTrace::run_engine(const variable_list& tangents, bool create_graph, const std::vector<bool>& wanted) {
  at::Tensor start;
  Recorder::unrecorded([&] { start = at::zeros({}); });
  const auto root = own_node(new TangentsNode(start));
  torch::autograd::edge_list ends;
  size_t next = 0;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].is_differentiable) continue;
    const at::Tensor& tangent = tangents.at(next++);
    if (!tangent.defined()) continue;
    const Edge edge = torch::autograd::impl::gradient_edge(result_stand_ins_[i]);
    root->add_next_edge(recorder_.is_released() ? edge : whole_formulas_(edge));
    root->tangents.push_back(tangent);
  }
  const auto is_wanted = [&](size_t i) { return primals_[i].gradient.is_valid() && (wanted.empty() || wanted[i]); };
  for (size_t i = 0; i < primals_.size(); ++i) {
    if (is_wanted(i)) ends.push_back(primals_[i].gradient);
  }
  variable_list found(ends.size());
  if (!root->tangents.empty() && !ends.empty()) {
    found = torch::autograd::Engine::get_default_engine().execute({{root, 0}}, {start}, /*keep_graph=*/true, create_graph,
                                                                  /*accumulate_grad=*/false, ends);
  }
  variable_list gradients;
  next = 0;
  for (size_t i = 0; i < primals_.size(); ++i) gradients.push_back(is_wanted(i) ? found[next++] : at::Tensor());
  return gradients;
}

std::vector<at::Tensor> FunctionTrace::saved_values(const std::vector<ValueId>& values) const {
  std::unordered_map<uint32_t, at::Tensor> known;
  for (const at::Tensor& stand_in : recorder_.held()) {
    if (const TracingTensor* traced = TracingTensor::get(stand_in)) known.emplace(traced->value.index, traced->real);
  }
  std::vector<at::Tensor> tensors;
  for (const ValueId value : values) {
    const auto found = known.find(value.index);
    tensors.push_back(found == known.end() ? at::Tensor() : found->second);
  }
  return tensors;
}

}  // namespace hindcast::capture
