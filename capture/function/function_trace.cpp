#include "capture/function/function_trace.h"

#include "base/format.h"
#include "capture/backward/facts.h"
#include "capture/function/grad_mode_formulas.h"
#include "capture/function/history.h"
#include "capture/function/input_node.h"
#include "capture/function/places.h"
#include "capture/function/random_state.h"
#include "capture/function/watch_grad.h"
#include "capture/graph/accumulation.h"
#include "capture/ops/op_facts.h"
#include "capture/recorder/comparisons.h"
#include "capture/recorder/data_sizes.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace hindcast::capture {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// While alive, calls of this thread are recorded, with autograd active above.
class FunctionTrace::RecorderScope {
 public:
  explicit RecorderScope(Recorder& recorder)
      : replays_views_(c10::AutogradState::get_tls_state().get_view_replay_enabled()),
        caches_casts_(at::autocast::is_autocast_cache_enabled()),
        has_device_threads_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
        scope_(recorder, Recorder::Autograd::Above) {
    // On a write to a view, autograd then keeps how the view was made, not its current geometry.
    c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
    // A cached cast would be a stand-in after the trace, and a constant in it.
    at::autocast::set_autocast_cache_enabled(false);
    // A backward, the function's own or that of the trace, stays on this thread: there is no recorder on the threads that the stock engine
    // has for accelerators.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~RecorderScope() {
    c10::AutogradState::get_tls_state().set_view_replay_enabled(replays_views_);
    at::autocast::set_autocast_cache_enabled(caches_casts_);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(has_device_threads_);
  }
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;

 private:
  const bool replays_views_, caches_casts_, has_device_threads_;
  const Recorder::Scope scope_;
};

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

// Has the same memory and version, without history.
at::Tensor without_history(const at::Tensor& tensor) { return tensor.tensor_data(); }

// Whether autograd knows `tensor` as a view of `whole`, so that a write to it is seen there.
bool is_tracked_view(const at::Tensor& tensor, const at::Tensor& whole) {
  using torch::autograd::CreationMeta;
  if (!tensor.is_view() || !tensor._base().is_same(whole)) return false;
  const CreationMeta made = torch::autograd::impl::get_view_autograd_meta(tensor)->get_creation_meta();
  return made != CreationMeta::NO_GRAD_MODE && made != CreationMeta::INFERENCE_MODE;
}

// Whether a write through one invalidates what was saved of the other. For `.data` it does not.
bool have_one_version(const at::Tensor& a, const at::Tensor& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));  // the counter
  const auto &one = a.unsafeGetTensorImpl()->version_counter(), &other = b.unsafeGetTensorImpl()->version_counter();
  return std::memcmp(&one, &other, sizeof(one)) == 0;
}

// Autograd does not know what a detached view is a view of: returns the one among `tensors` that shares its memory and its version.
at::Tensor detached_from(const std::vector<at::Tensor>& tensors, const at::Tensor& view) {
  for (const at::Tensor& tensor : tensors) {
    const TracingTensor* traced = TracingTensor::get(tensor);
    if (traced && traced->base == TracingTensor::get(view)->base && traced->views.empty() && have_one_version(tensor, view)) return tensor;
  }
  return view;
}

// Recognises LibTorch's errors for access to the memory of a stand-in.
bool is_about_a_stand_in(const std::exception& error) {
  const std::string_view text = error.what();
  return text.find("TracingTensor") != text.npos || text.find("Expected no weakrefs to t") != text.npos ||  // swap_tensors()
         text.find("Cannot access data pointer of Tensor that doesn't have storage") != text.npos ||
         text.find("doesn't correspond to a device") != text.npos;  // Python's new_tensor()
}

// A checkpoint that draws random numbers also does this when it recomputes. A program would draw other numbers.
constexpr const char* kSetsRandomState = "it saves, seeds or restores the state of random numbers";

}  // namespace

// ---- the forward

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

FunctionTrace::Histories FunctionTrace::histories() const {
  std::unordered_map<const Node*, uint32_t> begins;
  for (uint32_t i = 0; i < primals_.size(); ++i) begins.emplace(primals_[i].gradient.function.get(), i);
  std::set<std::vector<uint32_t>> histories;
  std::unordered_set<const Node*> nodes;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].is_differentiable) continue;
    std::set<uint32_t> reached;
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> open = {torch::autograd::impl::gradient_edge(result_stand_ins_[i]).function.get()};
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      if (const auto primal = begins.find(node); primal != begins.end()) {
        reached.insert(primal->second);
        continue;
      }
      nodes.insert(node);
      for (const Edge& edge : node->next_edges()) open.push_back(edge.function.get());
    }
    histories.emplace(reached.begin(), reached.end());
  }
  return {{histories.begin(), histories.end()}, nodes.size()};
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

// ---- what the function returns

std::optional<uint32_t> FunctionTrace::primal_of(const Base* base) const {
  for (uint32_t i = 0; i < primals_.size(); ++i) {
    const TracingTensor* traced = TracingTensor::get(primals_[i].stand_in);
    if (traced && traced->base.get() == base) return i;
  }
  return std::nullopt;
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

void FunctionTrace::read_results(const std::vector<at::Tensor>& outputs) {
  read_returned(outputs);
  read_writes();
  for (const auto& [value, number] : asked_) {
    numbers_.push_back({static_cast<uint32_t>(results_.size()), number});
    results_.push_back({value});
    result_stand_ins_.emplace_back();
  }
  cut_edges(outputs);
}

uint32_t FunctionTrace::add_result(const at::Tensor& stand_in) {
  for (uint32_t i = 0; i < results_.size(); ++i) {
    if (result_stand_ins_[i].is_same(stand_in)) return i;
  }
  results_.push_back({recorder_.value_of(stand_in), stand_in.requires_grad()});
  result_stand_ins_.push_back(stand_in);
  return static_cast<uint32_t>(results_.size() - 1);
}

Returned FunctionTrace::from_primal(uint32_t primal, const at::Tensor& output) const {
  if (is_made_of_numbers(primal))
    throw NotTraced(
        "it returns a tensor that torch.tensor() or the like has made, and that requires grad or shares memory with another one");
  Returned returned{Returned::From::Primal, primal};
  const TracingTensor* traced = TracingTensor::get(output);
  if (!traced || primals_[primal].stand_in.is_same(output)) {
    returned.is_itself = true;
  } else {
    returned.views = traced->views;
  }
  const at::Tensor& whole = primal < input_count() ? primals_[primal].stand_in : lifted_[primal - input_count()];
  // Results of unsafe_split() have version counters of their own, also when they are taken again.
  const bool are_views = std::all_of(returned.views.begin(), returned.views.end(),
                                     [](const ViewStep& step) { return step.op.schema().returns().at(0).alias_info() != nullptr; });
  if (!returned.is_itself && are_views && !have_one_version(output, whole))
    throw NotTraced("it returns .data of an argument, or a view of that");
  if (!returned.is_itself && output.is_leaf() && output.requires_grad())
    throw NotTraced("it returns a view of an argument that requires grad by itself");
  const bool is_written = traced && traced->base->value != primals_[primal].value;
  if (is_written && output.requires_grad() && !returned.is_itself && !(output.is_view() && output._base().is_same(whole))) {
    throw NotTraced("it returns a tensor that shares memory with an argument, and has a history of its own");
  }
  returned.with_autograd = output.requires_grad() || is_tracked_view(output, whole);
  return returned;
}

void FunctionTrace::read_returned(const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> own;  // by output: what the function made itself
  for (const at::Tensor& output : outputs) {
    const auto first = std::find_if(outputs.begin(), outputs.end(), [&](const at::Tensor& other) { return other.is_same(output); });
    returned_.emplace_back();
    own.emplace_back();
    if (!output.defined()) continue;
    const TracingTensor* traced = TracingTensor::get(recorder_.lifted(output));
    if (!traced) throw NotTraced("it returns a number as a tensor");
    for (const ViewStep& view : traced->views) {
      for (uint32_t i = 0; i < view.args.size(); ++i) {
        if (i != view.self_arg && !view.args[i].values.empty()) throw NotTraced("it returns a view that takes two tensors to make");
      }
    }
    if (const auto primal = primal_of(traced->base.get()); primal && !copy_if_made_of_numbers(*primal)) {
      returned_.back() = from_primal(*primal, output);
    } else {
      own.back() = output;
    }
    if (&*first != &output) returned_.back().same_as = static_cast<uint32_t>(first - outputs.begin());
  }
  std::unordered_map<const Base*, at::Tensor> wholes;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!own[i].defined()) continue;
    const TracingTensor& traced = *traced_of(own[i]);
    const bool is_shared = std::any_of(own.begin(), own.end(), [&](const at::Tensor& other) {
      return other.defined() && !other.is_same(own[i]) && traced_of(other)->base == traced.base;
    });
    Returned& returned = returned_[i];
    returned.from = Returned::From::Result;
    returned.with_autograd = own[i].requires_grad();
    if (!is_shared) {
      returned.index = add_result(own[i]);
      continue;
    }
    // For tensors that share memory, the program returns the tensor that all of them are views of.
    const at::Tensor whole = traced.views.empty() ? own[i] : own[i].is_view() ? at::Tensor(own[i]._base()) : detached_from(own, own[i]);
    const TracingTensor* base = traced_of(whole);
    if (wholes.try_emplace(traced.base.get(), whole).first->second.unsafeGetTensorImpl() != whole.unsafeGetTensorImpl())
      throw NotTraced("it returns tensors that share memory, and the one is no view of the other (.data)");
    if (!base || base->base != traced.base || !base->views.empty())
      throw NotTraced("it returns tensors that share memory which none of them has all of");
    returned.index = add_result(whole);
    returned.views = traced.views;
    returned.with_autograd |= is_tracked_view(own[i], whole);
  }
}

void FunctionTrace::read_writes() {
  for (uint32_t i = 0; i < primals_.size(); ++i) {
    Primal& primal = primals_[i];
    const TracingTensor* traced = TracingTensor::get(primal.stand_in);
    if (traced && !traced->views.empty()) throw NotTraced("it changes the geometry of an input in place");
    if (traced && i < input_count() && primal.stand_in.is_leaf() && primal.stand_in.requires_grad() != primal.required_grad)
      throw NotTraced("it sets requires_grad of an argument");
    if (!traced || traced->base->value == primal.value) continue;
    const bool is_lifted = i >= input_count();
    const at::Tensor& seen = is_lifted ? lifted_[i - input_count()] : primal.stand_in;
    const bool has_new_history = has_another_history(seen, primal.inner, primal.outside);
    if (is_lifted && has_new_history) throw NotTraced("it writes something that needs a gradient to a tensor from outside");
    results_.push_back({recorder_.value_of(primal.stand_in), has_new_history, i, version_of(seen) != primal.version});
    result_stand_ins_.push_back(primal.stand_in);
  }
}

// Edges that leave the function, to where a tensor from outside was made, end at an input node of ours: otherwise the engine would continue
// there, and count that tensor's gradient twice.
void FunctionTrace::cut_edges(const std::vector<at::Tensor>& outputs) {
  std::unordered_set<torch::autograd::Node*> reached;
  const auto replace = [this](const Edge& edge) -> std::optional<Edge> {
    for (size_t i = input_count(); i < primals_.size(); ++i) {
      if (primals_[i].outside.is_valid() && primals_[i].outside == edge) return primals_[i].gradient;
    }
    return std::nullopt;
  };
  if (const auto reason = replace_edges(result_stand_ins_, replace, &reached)) throw NotTraced(*reason);
  for (const torch::autograd::Node* node : reached) {
    has_formulas_ = has_formulas_ || is_custom_function(*node);
    has_users_backward_ = has_users_backward_ || is_users_function(*node);
    asks_for_grad_mode_ = asks_for_grad_mode_ || capture::asks_for_grad_mode(*node);
  }
  std::vector<at::Tensor> views;  // these are taken again of the arguments, without hooks
  std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(views),
               [](const at::Tensor& output) { return output.defined() && !output.is_leaf(); });
  if (const auto reason = replace_edges(views, replace)) throw NotTraced(*reason);
  for (Primal& primal : primals_) {
    if (!primal.gradient.is_valid() || reached.contains(primal.gradient.function.get())) continue;
    if (has_hooks(*primal.gradient.function)) throw NotTraced("it registers a hook on an argument");
    // No result depends on it: without hindcast its node would be in no graph, and its hooks would not be called.
    primal.gradient = {};
  }
}

at::Tensor FunctionTrace::real_result(size_t result) const {
  const at::Tensor& stand_in = result_stand_ins_[result];
  const TracingTensor* traced = traced_of(stand_in);
  if (!traced) return {};  // a number
  at::Tensor real = without_history(traced->real);
  share_version(real, stand_in);  // LibTorch checks what it has saved of the stand-in against the caller's writes
  return real;
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

// ---- the backward

variable_list FunctionTrace::backward(const variable_list& tangents, bool create_graph) {
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
  variable_list stand_ins, found;
  tangents_ = values_of_tangents(tangents, stand_ins);
  gradients_.clear();
  try {
    const RecorderScope at_work(recorder_);
    found = run_engine(stand_ins, create_graph);
  } catch (const std::exception& error) {
    if (!is_about_a_stand_in(error)) throw;
    recorder_.refuse("reads the memory of a tensor");
    return backward_as_itself(tangents, create_graph);
  }
  variable_list gradients;
  for (const at::Tensor& gradient : found) {
    const TracingTensor* traced = TracingTensor::get(gradient);
    if (gradient.defined() && !traced) recorder_.refuse("its backward ran on another thread, or returned a tensor from outside");
    gradients_.push_back(traced ? recorder_.value_of(gradient) : ValueId());
    // As a program's result. LibTorch's engine would add in place to a view that conjugates, and .grad would be one.
    gradients.push_back(traced ? without_history(traced->real).resolve_conj().resolve_neg() : gradient);
  }
  if (!recorder_.refusal() && tangents_.size() > 1 && !depends_on_tangents_alone())
    recorder_.refuse("a formula does not use the gradient that it is given");
  if (recorder_.refusal()) recorder_.release();
  return gradients;
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

variable_list FunctionTrace::backward_as_itself(const variable_list& tangents, bool create_graph) {
  recorder_.release();
  bypass_call_node();
  return run_engine(tangents, create_graph);
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
variable_list FunctionTrace::run_engine(const variable_list& tangents, bool create_graph) {
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
  for (const Primal& primal : primals_) {
    if (primal.gradient.is_valid()) ends.push_back(primal.gradient);
  }
  variable_list found(ends.size());
  if (!root->tangents.empty() && !ends.empty()) {
    found = torch::autograd::Engine::get_default_engine().execute({{root, 0}}, {start}, /*keep_graph=*/true, create_graph,
                                                                  /*accumulate_grad=*/false, ends);
  }
  variable_list gradients;
  next = 0;
  for (const Primal& primal : primals_) gradients.push_back(primal.gradient.is_valid() ? found[next++] : at::Tensor());
  return gradients;
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
  joint.graph = std::move(graph);
  return joint;
}

// ---- what an instr cannot represent

Answer FunctionTrace::draws_random_numbers(const c10::OperatorHandle&) {
  if (was_random_state_set()) recorder_.refuse(kSetsRandomState);
  if (!random_state_.defined()) random_state_ = RandomState::of(real_inputs());
  return Answer::Record;
}

Answer FunctionTrace::depends_on_data(const c10::OperatorHandle& op) {
  if (is_forward_ && has_data_size(op.operator_name())) return Answer::Record;
  return returns_no_tensor(op);
}

static const c10::OperatorName kItem("aten::_local_scalar_dense", "");

// The function's own item() and equal() are compared in every call (AskedNumber); one inside an autograd formula cannot be.
Answer FunctionTrace::returns_no_tensor(const c10::OperatorHandle& op) {
  return is_forward_ && (op.operator_name() == kItem || is_comparison(op.operator_name())) ? Answer::Record : Answer::Refuse;
}

void FunctionTrace::told_number(ValueId of, const at::Scalar& number) {
  if (is_forward_) asked_.emplace_back(of, number);
}

bool FunctionTrace::is_made_of_numbers(uint32_t primal) const {
  if (primal < input_count() || made_of_numbers_.empty()) return false;
  return std::any_of(made_of_numbers_.begin(), made_of_numbers_.end(),
                     [&](const at::Tensor& made) { return shares_memory(made, primals_[primal].real); });
}

// A tensor that torch.tensor() or the like makes in the function is a constant input of the program. If the function writes to it or
// returns it, the program copies that input in each call. False: the primal is no such tensor, or cannot be copied.
bool FunctionTrace::copy_if_made_of_numbers(uint32_t primal) {
  if (!is_forward_ || !is_made_of_numbers(primal)) return false;
  Primal& known = primals_[primal];
  at::Tensor& input = lifted_[primal - input_count()];
  if (known.outside.is_valid() || !is_alone_in_memory(known)) return false;
  copied_numbers_.push_back({input, known.stand_in});
  recorder_.become_copy(known.stand_in);
  TracingTensor::get(known.stand_in)->real = without_history(input);
  Recorder::unrecorded([&] { known.real = input = input.clone(); });
  known.stand_in.reset();
  return true;
}

const TracingTensor* FunctionTrace::traced_of(const at::Tensor& tensor) const {
  for (const CopiedNumbers& copied : copied_numbers_) {
    if (copied.tensor.is_same(tensor)) return TracingTensor::get(copied.stand_in);
  }
  return TracingTensor::get(tensor);
}

bool FunctionTrace::is_alone_in_memory(const Primal& primal) const {
  return std::none_of(primals_.begin(), primals_.end(),
                      [&](const Primal& other) { return &other != &primal && shares_memory(other.real, primal.real); });
}

// Throws LibTorch's error for a write to a view, such as a piece of chunk(): the stand-in is no view.
static void check_that_it_may_be_written(const at::Tensor& argument) {
  if (!argument.requires_grad() || !at::GradMode::is_enabled()) return;
  auto* const meta = torch::autograd::impl::get_view_autograd_meta(argument);
  if (meta == nullptr || !meta->has_bw_view()) return;
  torch::autograd::handle_view_on_rebase(meta);
  TORCH_CHECK(!(argument._base().is_leaf() && argument._base().requires_grad()),
              "a view of a leaf Variable that requires grad is being used in an in-place operation.");
}

Answer FunctionTrace::writes_to_given(const c10::OperatorHandle&, const TracingTensor& target) {
  const auto written = primal_of(target.base.get());
  if (!written) return Answer::Record;  // a tensor that the forward made
  if (!is_forward_) return Answer::Refuse;
  if (inputs_ != nullptr && *written < input_count()) check_that_it_may_be_written((*inputs_)[*written]);
  if (copy_if_made_of_numbers(*written)) return Answer::Record;
  if (is_made_of_numbers(*written)) {
    recorder_.refuse(
        "it writes to a tensor that torch.tensor() or the like has made, and that requires grad or shares memory with another one");
    return Answer::Refuse;
  }
  Primal& primal = primals_[*written];
  const bool is_lifted = *written >= input_count();
  if (is_lifted && primal.outside.is_valid() && !primal.is_leaf && at::GradMode::is_enabled()) return Answer::Refuse;
  if (!is_alone_in_memory(primal)) return Answer::Refuse;
  if (!primal.before.defined()) {
    Recorder::unrecorded([&] { primal.before = primal.real.clone(); });
  }
  return Answer::Record;
}

bool FunctionTrace::is_given(const at::Tensor& tensor) const {
  return !TracingTensor::get(tensor) ||
         std::any_of(primals_.begin(), primals_.end(), [&](const Primal& primal) { return primal.stand_in.is_same(tensor); });
}

at::Tensor FunctionTrace::lift(const at::Tensor& outside) {
  if (!is_plain(outside)) return {};
  if (!is_forward_) return known_by_its_place(outside);
  if (outside.requires_grad() && !outside.is_leaf()) {
    recorder_.refuse("it reads a tensor from outside that has a history, and will be another in the next call. Give it as an argument");
    return {};
  }
  const bool is_written = std::any_of(primals_.begin(), primals_.end(),
                                      [&](const Primal& primal) { return primal.before.defined() && shares_memory(primal.real, outside); });
  if (is_written) return {};
  Primal primal;
  primal.value = recorder_.new_value(outside);
  primal.real = outside.requires_grad() ? without_history(outside) : outside;
  primal.stand_in = recorder_.stand_in(primal.real, primal.value);
  if (outside.requires_grad()) {
    primal.outside = torch::autograd::impl::gradient_edge(outside);
    primal.inner = primal.gradient = input_edge(outside, primal.outside);
  }
  primal.version = version_of(outside);
  primal.is_leaf = outside.is_leaf();
  primals_.push_back(std::move(primal));
  lifted_.push_back(outside);
  return primals_.back().stand_in;
}

// Autograd saves a tensor from outside, and returns a new tensor object for it: that is recognised by its memory. Any other tensor that a
// formula finds outside may be another one in the next call.
at::Tensor FunctionTrace::known_by_its_place(const at::Tensor& outside) const {
  for (const Primal& primal : primals_) {
    if (is_same_place(primal.real, outside)) return primal.stand_in;
  }
  for (const CopiedNumbers& copied : copied_numbers_) {
    if (is_same_place(copied.tensor, outside)) return copied.stand_in;
  }
  return {};
}

}  // namespace hindcast::capture
