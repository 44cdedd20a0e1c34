#include "engine/aot/aot_node.h"

#include "engine/aot/choose_layout.h"

#include "base/format.h"
#include "base/log.h"
#include "codegen/partition/standard.h"
#include "engine/aot/family.h"
#include "engine/aot/names.h"
#include "capture/function/input_node.h"
#include "capture/function/random_state.h"
#include "capture/graph/shared_memory.h"
#include "engine/aot/tell_once.h"
#include "engine/takeover.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace hindcast::engine {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

OnStockEngine::OnStockEngine() : former_(current_options()) { set_current_options(nullptr); }
OnStockEngine::~OnStockEngine() { set_current_options(former_); }

namespace {

// Somebody may write to the memory of a saved tensor through a result: the saved one then has its version.
at::Tensor with_version_of(const at::Tensor& saved, const std::vector<at::Tensor>& results) {
  if (!saved.defined() || !saved.has_storage() || saved.storage().use_count() == 1) return saved;
  for (const at::Tensor& result : results) {
    if (!capture::shares_memory(saved, result) || result.is_inference()) continue;
    at::Tensor copy = saved.tensor_data();
    torch::autograd::impl::set_version_counter(copy, torch::autograd::impl::version_counter(result));
    return copy;
  }
  return saved;
}

// A trace gives each gradient as a tensor of its own, even where two lie in one memory. The engine gives one tensor, and a leaf that is
// about to take it sees that others hold it too.
void join_shared(variable_list& gradients, const variable_list& tangents, const std::vector<at::Tensor>& inputs,
                 const std::vector<at::Tensor>& lifted) {
  std::unordered_map<const void*, at::Tensor> known;  // by storage
  const auto storage_of = [](const at::Tensor& tensor) -> const void* {
    return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  };
  const auto lie_alike = [](const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() && a.strides() == b.strides() && a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype();
  };
  for (const at::Tensor& input : inputs) known.emplace(storage_of(input), at::Tensor());
  for (const at::Tensor& tensor : lifted) known.emplace(storage_of(tensor), at::Tensor());
  for (const at::Tensor& tangent : tangents) known.insert_or_assign(storage_of(tangent), tangent.requires_grad() ? at::Tensor() : tangent);
  for (at::Tensor& gradient : gradients) {
    const void* const storage = storage_of(gradient);
    if (storage == nullptr) continue;
    const auto [other, is_first] = known.emplace(storage, gradient);
    if (is_first) continue;
    if (other->second.defined() && lie_alike(other->second, gradient)) {
      gradient = other->second;
    } else {
      const at::AutoDispatchBelowADInplaceOrView below;
      gradient = gradient.clone();
    }
  }
}

// The same memory, with a node of its own before its history. Gradients of a function that runs once more are taken there: at the tensor
// itself they would be what flows through the history of another input too, and its hooks would be called.
at::Tensor behind_a_node(const at::Tensor& tensor) {
  at::Tensor own = tensor.tensor_data();
  torch::autograd::impl::set_gradient_edge(own, capture::input_edge(own, torch::autograd::impl::gradient_edge(tensor)));
  return own;
}

// What it was before the call's own writes.
at::Tensor copy_of(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return tensor.clone();
}

// While alive, tensors from outside and LibTorch's generator are as a traced call found them.
class FirstCallAgain {
 public:
  explicit FirstCallAgain(const capture::FunctionTrace& trace) {
    for (size_t i = trace.input_count(); i < trace.primal_count(); ++i) {
      const at::Tensor before = trace.before(i);
      if (!before.defined()) continue;
      const at::Tensor& now = trace.lifted()[i - trace.input_count()];
      put_back_.emplace_back(now, copy_of(now));
      write(now, before);
    }
    random_state_ = trace.random_state().now();
    trace.random_state().restore();
  }
  ~FirstCallAgain() {
    for (const auto& [tensor, contents] : put_back_) write(tensor, contents);
    random_state_.restore();
  }
  FirstCallAgain(const FirstCallAgain&) = delete;
  FirstCallAgain& operator=(const FirstCallAgain&) = delete;

 private:
  static void write(const at::Tensor& tensor, const at::Tensor& contents) {
    const at::AutoDispatchBelowADInplaceOrView below;
    tensor.copy_(contents);
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> put_back_;
  capture::RandomState random_state_;
};

[[noreturn]] void refuse_second_time() {
  throw std::runtime_error(
      "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved "
      "intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
      "backward through the graph a second time or if you need to access saved tensors after calling backward.");
}

}  // namespace

void AotNode::set_saved(std::shared_ptr<const Halves> halves, const std::vector<at::Tensor>& primals,
                        const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& results) {
  halves_ = std::move(halves);
  saved_.reserve(halves_->saved.size());
  for (const Saved& saved : halves_->saved) {
    switch (saved.from) {
      case Saved::From::Primal:
        saved_.emplace_back(of_->is_written(saved.index) ? copy_of(primals[saved.index]) : primals[saved.index], false);
        break;
      case Saved::From::Result: {
        const at::Tensor& result = results[saved.index];
        saved_.emplace_back(result, result.defined() && result.grad_fn().get() == this);
        break;
      }
      case Saved::From::Forward:
        saved_.emplace_back(with_version_of(outputs[saved.index], results), false);
        break;
    }
  }
}

void AotNode::keep_inputs(const std::vector<at::Tensor>& inputs) {
  has_inputs_ = true;
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input, false);
}

AotNode::~AotNode() { end(std::move(live_)); }

void AotNode::release_variables() {
  std::unique_ptr<capture::FunctionTrace> trace;
  {
    const std::lock_guard lock(mutex_);
    trace = std::move(live_);
    saved_.clear();
    inputs_.clear();
    is_released_ = true;
  }
  end(std::move(trace));
}

void AotNode::end(std::unique_ptr<capture::FunctionTrace> trace) {
  if (!trace) return;
  const auto made = trace->take_made();
  trace.reset();
  // Behind a backward that failed, LibTorch's engine may hold stand-ins in the queue of a device for a while.
  if (!of_->is_eager() && !of_->is_dropped()) of_->look_for_escapes(made);
}

// The engine knows one stream of a node, of one device; an eager function has a node for each op, and each has its stream.
void AotNode::note_streams(c10::ArrayRef<c10::Device> devices) {
  const auto own = stream();  // the one that was current for the results
  const auto is_another = [&](const c10::Device& device) { return !own || own->device() != device; };
  if (std::any_of(devices.begin(), devices.end(), is_another)) started_on_.emplace(devices);
}

variable_list AotNode::apply(variable_list&& tangents) {
  const std::lock_guard lock(mutex_);
  if (is_released_) refuse_second_time();
  if (!started_on_) [[likely]]
    return run(tangents);
  variable_list gradients;
  {
    const hooks::StartStreams::Scope scope(*started_on_, tangents, stream());
    gradients = run(tangents);
    scope.leave();
  }
  if (stream()) return gradients;  // the engine tells the allocator who reads them
  for (const at::Tensor& gradient : gradients) {
    if (const auto reader = hooks::current_stream_for(gradient)) hooks::keep_for(gradient, *reader);
  }
  return gradients;
}

variable_list AotNode::run(variable_list& tangents) {
  if (at::GradMode::is_enabled()) return of_edges(run_as_it_is(tangents, /*create_graph=*/true));
  if (!has_inputs_) complete(tangents);
  if (live_) return of_edges(backward_of_trace(tangents));
  if (auto gradients = backward_of_program(tangents, Program::Way::Best)) return of_edges(std::move(*gradients));
  return of_edges(backward_of_another_trace(tangents));
}

// This node's edges are those of the primals that need a gradient.
variable_list AotNode::of_edges(variable_list by_primal) const {
  variable_list gradients;
  for (size_t i = 0; i < by_primal.size(); ++i) {
    if (of_->needs_gradient(i)) gradients.push_back(std::move(by_primal[i]));
  }
  return gradients;
}

// What autograd saved in a trace are stand-ins, whose versions nobody else moves. So what was saved is looked for where a version has moved.
void AotNode::check_versions() const {
  const std::vector<uint32_t> now = live_->versions();
  if (now == versions_) return;
  const capture::Joint joint = live_->joint();
  for (const capture::ValueId saved : codegen::standard(joint).saved) {
    for (size_t i = 0; i < now.size(); ++i) {
      const bool is_primal = i < joint.primals;
      const capture::ValueId value = is_primal ? joint.primal_values()[i] : joint.result_values()[i - joint.primals];
      if (now[i] == versions_[i] || !(value == saved) || (is_primal && of_->is_written(i))) continue;
      throw std::runtime_error(
          base::format("one of the variables needed for gradient computation has been modified by an inplace operation: {} {} of a "
                       "compiled function is at version {}; expected version {} instead.",
                       is_primal ? "argument" : "result", is_primal ? i : i - joint.primals, now[i], versions_[i]));
    }
  }
}

variable_list AotNode::backward_of_trace(const variable_list& tangents) {
  const OnStockEngine stock;
  variable_list gradients;
  try {
    gradients = live_->backward(tangents);
  } catch (const capture::NotTraced& error) {
    of_->give_up();
    tell_once(std::string("a function runs as it is from now on: in its backward, ") + error.what());
    return has_inputs_ ? run_as_it_is(tangents, /*create_graph=*/false) : run_first_call_again(tangents);
  } catch (const std::exception& error) {
    // Where the error is the function's own, it comes again from there. Else this trace was in vain, and another call is traced.
    gradients = has_inputs_ ? run_as_it_is(tangents, /*create_graph=*/false) : run_first_call_again(tangents);
    of_->drop();
    if (const auto family = of_->family()) family->remove(*of_);
    HC_LOG(Aot, Info, "a traced backward failed: {}", error.what());
    return gradients;
  }
  check_versions();
  if (!of_->halves_for(tangents)) learn(*live_, tangents, live_->real_inputs());
  join_shared(gradients, tangents, live_->real_inputs(), live_->lifted());
  return gradients;
}

const capture::NodeProgram* AotNode::program() const {
  if (started_on_) return nullptr;  // in another graph its ops would run on one stream
  return halves_ && halves_->backward->has_plan() ? &halves_->of_node : nullptr;
}

std::optional<variable_list> AotNode::run_as_captured(const variable_list& gradients) {
  const std::lock_guard lock(mutex_);
  if (is_released_) refuse_second_time();
  auto by_primal = backward_of_program(gradients, Program::Way::AsCaptured);
  if (!by_primal) return std::nullopt;
  return of_edges(std::move(*by_primal));
}

std::optional<variable_list> AotNode::backward_of_program(const variable_list& tangents, Program::Way way) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(saved_.size() + tangents.size());
  for (const SavedVariable& saved : saved_) inputs.push_back(saved.unpack(getptr()));
  for (size_t i = 0; i < tangents.size(); ++i) {
    auto tangent = as_captured(tangents[i], halves_->tangents.at(i));
    if (tangent && way == Program::Way::AsCaptured && !tangent->is_same(tangents[i])) return std::nullopt;
    if (!tangent) return std::nullopt;
    inputs.push_back(std::move(*tangent));
  }
  // The program may write to what nobody else holds once it has read it, and lets go of it as early as it can.
  if (way == Program::Way::Best && !torch::autograd::get_current_graph_task_keep_graph()) {
    saved_.clear();
    inputs_.clear();
    is_released_ = true;
  }
  context_->counts.backwards.fetch_add(1, std::memory_order_relaxed);
  return halves_->backward->run(std::move(inputs), bindings_, way);
}

// A function that cannot run again gets one backward for all that may flow in: zeros where nothing does, and no layouts of their own.
void AotNode::complete(variable_list& tangents) const {
  for (size_t i = 0; i < tangents.size(); ++i) {
    tangents[i] = tangents[i].defined() ? tangents[i].contiguous() : input_metadata(i).zeros_like();
  }
}

// Gradients flow into other results than those that the programs were made for. Where there are programs for these too, the forward could
// not know which backward would come.
variable_list AotNode::backward_of_another_trace(const variable_list& tangents) {
  context_->counts.run_again.fetch_add(1, std::memory_order_relaxed);
  const OnStockEngine stock;
  std::vector<at::Tensor> inputs = unpack_inputs();
  const auto trace = std::make_unique<capture::FunctionTrace>(of_->sizes_of(bindings_), /*answers_freely=*/true);
  variable_list gradients;
  try {
    const at::AutoGradMode grad(true);
    trace->forward([&](const std::vector<at::Tensor>& stand_ins) { return of_->function()(stand_ins).tensors; }, inputs);
    const at::AutoGradMode no_grad(false);
    gradients = trace->backward(tangents);
  } catch (const std::exception&) {  // its own errors come again from there
    return run_as_it_is(tangents, /*create_graph=*/false);
  }
  if (const auto known = of_->halves_for(tangents)) {
    of_->was_missed(known);
  } else if (of_->is_like(*trace)) {
    learn(*trace, tangents, inputs);
  }
  join_shared(gradients, tangents, inputs, trace->lifted());
  return gradients;
}

void AotNode::learn(const capture::FunctionTrace& trace, const variable_list& tangents, std::vector<at::Tensor> inputs) {
  inputs.insert(inputs.end(), trace.lifted().begin(), trace.lifted().end());
  const auto primals = [&] { return inputs; };
  try {
    if (trace.symbols()->has_answered()) {
      // Right for these sizes alone.
      if (of_->is_dynamic() && !of_->is_exact() && (of_->halves() || bindings_.ints != of_->symbols_at_capture())) return;
      of_->make_exact();
    }
    const auto halves = make_halves(with_tensor_names(trace.joint(), context_->options, trace.lifted()),
                                    {context_->options, of_->lasting(), of_->with_gradients(), &tangents, primals, nullptr, of_->leaves()});
    of_->add(halves);
    if (const auto family = of_->family()) family->learned(*of_, halves);
    choose_layout(of_, halves, context_->options);
  } catch (const std::exception& error) {
    of_->give_up();
    tell_once(std::string("a function runs as it is from now on: no program could be made of its backward: ") + error.what());
  }
}

std::vector<at::Tensor> AotNode::unpack_inputs() {
  std::vector<at::Tensor> inputs;
  for (const SavedVariable& input : inputs_) inputs.push_back(input.unpack(getptr()));
  return inputs;
}

// The function runs once more, as it is, for autograd to make a graph of it: one that can be differentiated, where that is wanted.
variable_list AotNode::run_as_it_is(const variable_list& tangents, bool create_graph) {
  if (!has_inputs_) {
    throw std::runtime_error(
        "hindcast::aot_function: create_graph needs the function to run again, and this one writes to its inputs, returns tensors "
        "that share memory, or draws random numbers. Call the function itself where you need second derivatives");
  }
  context_->counts.run_again.fetch_add(1, std::memory_order_relaxed);
  const OnStockEngine stock;
  const at::AutoGradMode grad(true);
  std::vector<at::Tensor> inputs = unpack_inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (of_->needs_gradient(i)) inputs[i] = behind_a_node(inputs[i]);
  }
  return gradients_of(of_->function()(inputs).tensors, inputs, inputs, tangents, create_graph);
}

// The same for the call that was traced, and has written and drawn: from what it found, and without a second effect.
variable_list AotNode::run_first_call_again(const variable_list& tangents) {
  const FirstCallAgain as_it_was(*live_);
  const at::AutoGradMode grad(true);
  std::vector<at::Tensor> ends = live_->real_inputs(), given;
  for (size_t i = 0; i < ends.size(); ++i) {
    const at::Tensor before = live_->before(i);
    if (before.defined()) ends[i] = before;
    if (of_->needs_gradient(i)) ends[i] = ends[i].detach().requires_grad_();
    given.push_back(of_->needs_gradient(i) || before.defined() ? ends[i].clone() : ends[i]);
  }
  return gradients_of(of_->function()(given).tensors, given, ends, tangents, /*create_graph=*/false);
}

// `given`: what the function was given; `ends`: where gradients of these are wanted.
variable_list AotNode::gradients_of(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& given, const variable_list& ends,
                                    const variable_list& tangents, bool create_graph) const {
  const auto tensor_of = [&](uint32_t result) -> at::Tensor {
    if (const auto written = of_->results()[result].written) return given.at(*written);
    for (size_t o = 0; o < outputs.size(); ++o) {
      const capture::Returned& returned = of_->returned()[o];
      if (returned.from != capture::Returned::From::Result || returned.index != result) continue;
      return returned.views.empty() ? outputs[o] : at::Tensor(outputs[o]._base());
    }
    return {};
  };
  variable_list roots, into, wanted;
  size_t next = 0;
  for (uint32_t r = 0; r < of_->results().size(); ++r) {
    if (!of_->results()[r].is_differentiable) continue;
    const at::Tensor& tangent = tangents.at(next++);
    if (!tangent.defined()) continue;
    roots.push_back(tensor_of(r));
    into.push_back(tangent);
  }
  std::vector<std::pair<torch::autograd::Edge, torch::autograd::Edge>> lifted;  // where the function's history leads, and where it shall
  std::unordered_set<torch::autograd::Node*> borders;
  const std::vector<at::Tensor> outside = of_->find_lifted();
  for (size_t i = 0; i < ends.size() + outside.size(); ++i) {
    if (!of_->needs_gradient(i)) continue;
    const bool is_lifted = i >= ends.size();
    wanted.push_back(is_lifted ? behind_a_node(outside[i - ends.size()]) : ends[i]);
    const auto edge = torch::autograd::impl::gradient_edge(wanted.back());
    borders.insert(edge.function.get());
    if (is_lifted) lifted.emplace_back(torch::autograd::impl::gradient_edge(outside[i - ends.size()]), edge);
  }
  const auto redirect = [&](const torch::autograd::Edge& edge) -> std::optional<torch::autograd::Edge> {
    const auto known = std::find_if(lifted.begin(), lifted.end(), [&](const auto& each) { return each.first == edge; });
    return known == lifted.end() ? std::nullopt : std::optional(known->second);
  };
  if (!lifted.empty()) capture::replace_edges(roots, redirect, &borders);
  variable_list found = torch::autograd::grad(roots, wanted, into, /*retain_graph=*/create_graph, create_graph, /*allow_unused=*/true);
  variable_list by_primal(ends.size() + outside.size());
  for (size_t i = 0, k = 0; i < by_primal.size(); ++i) {
    if (of_->needs_gradient(i)) by_primal[i] = std::move(found[k++]);
  }
  return by_primal;
}

}  // namespace hindcast::engine
