#include "capture/function/function_trace.h"

#include "base/format.h"
#include "capture/backward/facts.h"
#include "capture/function/input_node.h"
#include "capture/function/places.h"
#include "capture/function/recorder_scope.h"
#include "capture/function/watch_grad.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace hindcast::capture {

void FunctionTrace::forward(const Function& function, const std::vector<at::Tensor>& inputs) {
  recorder_.begin(0);
  recorder_.set_lifts(true);
  recorder_.set_continues_eagerly(continues_eagerly_);
  graph_->origins = {"forward", "backward", Graph::kWithoutGradients};
  if (at::GradMode::is_enabled()) recorder_.set_origin_without_gradients(2);
  for (size_t i = 0; i < inputs.size(); ++i) add_input(i, inputs[i]);
  inputs_ = &inputs;
  graph_task_ = torch::autograd::get_current_graph_task_id();
  drawn_up_to_ = RandomState::of(inputs);
  std::vector<at::Tensor> outputs;
  {
    const RecorderScope at_work(recorder_);
    try {
      outputs = run(function);
    } catch (const NotTraced&) {
      throw;
    } catch (...) {
      note_accumulated();
      finish_eagerly({}, inputs);  // what it did to its arguments stays
      throw;
    }
    try {
      if (recorder_.has_thrown())
        recorder_.refuse("it catches an operator's error and continues; which arguments cause that error is not known");
      if (was_random_state_set()) recorder_.refuse(kSetsRandomState);
      if (!recorder_.refusal()) refuse_users_operator_before_a_check();
      if (!recorder_.refusal()) read_results(outputs);
      if (!recorder_.refusal()) find_kept(outputs);
    } catch (const NotTraced& reason) {
      recorder_.refuse(reason.what());
    }
    if (recorder_.refusal() && !continues_eagerly_) {
      undo();
      throw NotTraced(*recorder_.refusal());
    }
    note_accumulated();
    if (recorder_.refusal()) return finish_eagerly(std::move(outputs), inputs);
  }
  if (may_keep_some_) connect_leaves_to_arguments();  // for backwards that begin at what it has kept
  for (Primal& primal : primals_) {
    if (!primal.gradient.is_valid()) primal.inner = primal.outside = {};  // its node lives no longer than without hindcast
  }
  forward_end_ = graph_->instrs.size();
  is_forward_ = false;
  inputs_ = nullptr;
  loses_history_ = recorder_.lost_history();
}

void FunctionTrace::add_input(size_t number, const at::Tensor& input) {
  Primal primal;
  if (input.defined()) {
    primal.value = sizes_of_ ? recorder_.new_value(input, sizes_of_(number, *graph_->symbols)) : recorder_.new_value(input);
    primal.real = input.requires_grad() ? without_history(input) : input;
    primal.stand_in = recorder_.stand_in(primal.real, primal.value);
    share_version(primal.stand_in, input);  // LibTorch checks what it saves of the stand-in against the caller's writes
    if (input.requires_grad()) primal.outside = torch::autograd::impl::gradient_edge(input);
    watch_grad(primal.stand_in, input);
    if (input.requires_grad() && input.is_leaf()) {
      primal.stand_in.set_requires_grad(true);  // so that writing to it is the same error as without hindcast
      primal.gradient = torch::autograd::impl::gradient_edge(primal.stand_in);
    } else if (input.requires_grad()) {
      primal.gradient = input_edge(primal.stand_in, primal.outside);
      torch::autograd::impl::set_gradient_edge(primal.stand_in, primal.gradient);
    }
    primal.inner = primal.gradient;
    primal.required_grad = input.requires_grad();
    primal.version = version_of(primal.stand_in);
    primal.is_leaf = input.is_leaf();
  }
  primals_.push_back(std::move(primal));
}

std::vector<at::Tensor> FunctionTrace::run(const Function& function) {
  std::vector<at::Tensor> stand_ins, outputs;
  for (const Primal& primal : primals_) stand_ins.push_back(primal.stand_in);
  try {
    outputs = function(stand_ins);
  } catch (const std::exception& error) {
    if (!is_about_a_stand_in(error) && !(recorder_.refusal() && !continues_eagerly_)) throw;
    // The function cannot continue: this error has ended it.
    recorder_.refuse("it reads the memory of a tensor (data_ptr, accessor)");
    undo();
    throw NotTraced(*recorder_.refusal());
  }
  for (const at::Tensor& output : outputs) {
    if (output.defined() && !TracingTensor::get(output) && !is_plain(output))
      recorder_.refuse("it returns a tensor that is not a plain strided one");
  }
  return outputs;
}

// Restores the contents of the inputs, for the function to run without us.
void FunctionTrace::undo() {
  const at::AutoDispatchBelowADInplaceOrView below;
  for (size_t i = 0; i < primals_.size(); ++i) {
    Primal& primal = primals_[i];
    if (!primal.before.defined()) continue;
    if (primal.real.sizes() != primal.before.sizes()) primal.real.resize_(primal.before.sizes());  // by an op with `out`
    primal.real.copy_(primal.before);
    if (i < input_count()) continue;
    at::Tensor& outside = lifted_[i - input_count()];
    if (outside.requires_grad() && torch::autograd::impl::gradient_edge(outside) != primal.outside) outside.detach_();
  }
  random_state_.restore();
}

// A program may find while it runs that a number or a size differs from the traced one. Then the function runs, and would call the operator
// again.
void FunctionTrace::refuse_users_operator_before_a_check() {
  size_t last_check = asked_.empty() ? 0 : graph_->instrs.size();  // numbers are compared after the program has run
  for (size_t i = last_check; i < graph_->instrs.size(); ++i) {
    if (graph_->binds_sizes(graph_->instrs[i])) last_check = i;
  }
  for (size_t i = 0; i < last_check; ++i) {
    const Instr& instr = graph_->instrs[i];
    if (!instr.seen.is_noted) continue;
    return recorder_.refuse(
        base::format("it calls {}, which is no operator of LibTorch's, and then reads a number or a size that depends on data",
                     c10::toString(instr.op->operator_name())));
  }
}

bool FunctionTrace::calls_users_operator() const {
  for (size_t i = 0; i < forward_end_; ++i) {
    if (graph_->instrs[i].seen.is_noted) return true;
  }
  return false;
}

at::Tensor FunctionTrace::given(size_t primal) const {
  const Primal& known = primals_[primal];
  if (!known.real.defined()) return {};
  at::Tensor given = (known.before.defined() ? known.before : known.real).tensor_data();
  if (!known.before.defined()) share_version(given, known.real);
  if (known.outside.is_valid()) torch::autograd::impl::set_gradient_edge(given, known.outside);
  return given;
}

std::vector<at::Tensor> FunctionTrace::real_inputs() const {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < input_count(); ++i) inputs.push_back(primals_[i].real);
  return inputs;
}

void FunctionTrace::note_accumulated() {
  for (size_t i = 0; i < input_count(); ++i) {
    if (!primals_[i].stand_in.defined() || !primals_[i].stand_in.is_leaf()) continue;
    const at::Tensor gradient = grad_of(primals_[i].stand_in);
    const TracingTensor* traced = TracingTensor::get(gradient);
    if (gradient.defined()) accumulated_.emplace_back(i, without_history(traced ? traced->real : gradient));
  }
}

Joint FunctionTrace::joint() const {
  auto graph = std::make_shared<Graph>(*graph_);
  graph->inputs.clear();
  for (const Primal& primal : primals_) graph->inputs.push_back(primal.value);
  graph->inputs.insert(graph->inputs.end(), tangents_.begin(), tangents_.end());
  for (const Result& result : results_) graph->outputs.push_back(result.value);
  graph->outputs.insert(graph->outputs.end(), gradients_.begin(), gradients_.end());
  graph->verify();
  Joint joint;
  joint.primals = static_cast<uint32_t>(primals_.size());
  joint.results = static_cast<uint32_t>(results_.size());
  joint.forward_end = static_cast<uint32_t>(forward_end_);
  for (const auto& [computed, known] : recorder_.known_values()) joint.known.push_back({computed, known});
  joint.graph = std::move(graph);
  return joint;
}

}  // namespace hindcast::capture
