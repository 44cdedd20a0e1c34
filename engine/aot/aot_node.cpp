#include "engine/aot/aot_node.h"
#include "engine/aot/choose_layout.h"

#include "base/first_line.h"
#include "base/format.h"
#include "base/log.h"
#include "capture/function/random_state.h"
#include "capture/graph/shared_memory.h"
#include "codegen/partition/standard.h"
#include "engine/aot/family.h"
#include "engine/aot/names.h"
#include "engine/aot/separate_gradients.h"
#include "engine/aot/warn_once.h"
#include "engine/call_state.h"
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

capture::Joint joint_of(const capture::FunctionTrace& trace, const AotContext& context) {
  capture::Joint joint = with_tensor_names(trace.joint(), context.options, trace.lifted());
  joint.draws_atens = context.draws_atens.load(std::memory_order_relaxed);
  return joint;
}

namespace {

// If a saved tensor shares memory with a result, it also shares the version counter, so that a write through the result is detected.
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

// A trace returns each gradient as a separate tensor, even if two share memory. The stock engine would return one tensor, so that a leaf
// tensor about to steal it sees the other holders. Restores that: the same tensor if sizes and strides are equal, otherwise a copy.
void join_shared(variable_list& gradients, const variable_list& tangents, const std::vector<at::Tensor>& inputs,
                 const std::vector<at::Tensor>& lifted) {
  std::unordered_map<const void*, at::Tensor> known;  // by storage
  const auto storage_of = [](const at::Tensor& tensor) -> const void* {
    return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  };
  const auto are_same_view = [](const at::Tensor& a, const at::Tensor& b) {
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
    if (other->second.defined() && are_same_view(other->second, gradient)) {
      gradient = other->second;
    } else {
      const at::AutoDispatchBelowADInplaceOrView below;
      gradient = gradient.clone();
    }
  }
}

// A copy of the tensor before the call's own writes, with its history.
at::Tensor copy_of(const at::Tensor& tensor, bool needs_gradient) {
  at::Tensor copy;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    copy = tensor.clone();
  }
  if (needs_gradient) torch::autograd::impl::set_gradient_edge(copy, torch::autograd::impl::gradient_edge(tensor));
  return copy;
}

// The program was traced with contiguous tangents, whose strides may be constants in its views.
at::Tensor as_recorded(const at::Tensor& tangent) {
  return tangent.defined() && tangent.layout() == at::kStrided ? tangent.contiguous() : tangent;
}

constexpr const char* kLosesHistory = "it reads a tensor through .data, or uses saved-tensor hooks, as a checkpoint does";

bool are_plain(const variable_list& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return !tensor.defined() || capture::is_plain(tensor); });
}

[[noreturn]] void refuse_second_time() {
  throw std::runtime_error(
      "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved "
      "intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
      "backward through the graph a second time or if you need to access saved tensors after calling backward.");
}

}  // namespace

void AotNode::set_saved(std::shared_ptr<const ProgramPair> pair, const std::vector<at::Tensor>& primals,
                        const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& results) {
  pair_ = std::move(pair);
  saved_.reserve(pair_->saved.size());
  for (const Saved& saved : pair_->saved) {
    switch (saved.from) {
      case Saved::From::Primal:
        saved_.emplace_back(specialisation_->is_written(saved.index)
                                ? copy_of(primals[saved.index], specialisation_->needs_gradient(saved.index))
                                : primals[saved.index],
                            false);
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
  const SecondOrder& second_order = whole_of(pair_)->second_order;
  if (second_order.why_not != nullptr) return;
  for (const auto& [number, saved] : second_order.primals) {
    const at::Tensor& primal = primals[number];
    if (saved || !primal.defined() || specialisation_->is_written(number)) continue;
    for_second_order_.push_back({number, primal, primal.is_inference() ? 0 : static_cast<uint32_t>(primal._version())});
  }
}

AotNode::~AotNode() { end(std::move(live_)); }

void AotNode::release_variables() {
  if (keeps_for_others_) return;
  std::unique_ptr<capture::FunctionTrace> trace;
  {
    const std::lock_guard lock(mutex_);
    trace = std::move(live_);
    saved_.clear();
    for_second_order_.clear();
    is_released_ = true;
  }
  end(std::move(trace));
}

void AotNode::end(std::unique_ptr<capture::FunctionTrace> trace) {
  if (!trace) return;
  if (!has_learned_ && !has_failed_) specialisation_->had_no_backward();
  // In these cases tensors of the trace may legitimately be alive: a backward that is differentiated holds them, or LibTorch's engine after
  // a failed one.
  if (trace->is_released() || has_failed_) return;
  const auto made = trace->take_made();
  trace.reset();
  if (!specialisation_->is_eager() && !specialisation_->is_dropped()) specialisation_->look_for_escapes(made);
}

// The engine has one stream per node, on one device. An eager function has a node per op, each with its own stream.
void AotNode::note_streams(c10::ArrayRef<c10::Device> devices) {
  const auto own = stream();  // the stream that was current when the results were made
  const auto is_another = [&](const c10::Device& device) { return !own || own->device() != device; };
  if (std::any_of(devices.begin(), devices.end(), is_another)) started_on_.emplace(devices);
}

variable_list AotNode::apply(variable_list&& tangents) {
  const std::lock_guard lock(mutex_);
  if (is_released_) refuse_second_time();
  if (is_timed_) return run_timed(tangents);
  if (!started_on_) [[likely]]
    return run(tangents);
  variable_list gradients;
  {
    const hooks::StartStreams::Scope scope(*started_on_, tangents, stream());
    gradients = run(tangents);
    scope.leave();
  }
  if (stream()) return gradients;  // the engine notifies the allocator of their readers
  for (const at::Tensor& gradient : gradients) {
    if (const auto reader = hooks::current_stream_for(gradient)) hooks::keep_for(gradient, *reader);
  }
  return gradients;
}

// Only on the CPU: calls on other devices are not timed.
variable_list AotNode::run_timed(const variable_list& tangents) {
  const uint64_t start = detail::processor_ns();
  variable_list gradients = run(tangents);
  if (!at::GradMode::is_enabled())
    context_->back_off.took_backward(specialisation_.get(), detail::processor_ns() - start, /*is_own=*/false);
  return gradients;
}

variable_list AotNode::run(const variable_list& tangents) {
  const bool is_usual = !at::GradMode::is_enabled() && has_usual_dispatch_state() && are_plain(tangents);
  if (live_) return of_edges(backward_of_trace(tangents, is_usual));
  if (at::GradMode::is_enabled()) return of_edges(differentiable_backward(tangents));
  return of_edges(is_usual ? backward_of_program(tangents) : backward_by_ops(tangents));
}

// This node's edges are those of the primals that need a gradient.
variable_list AotNode::of_edges(variable_list by_primal) const {
  variable_list gradients;
  for (size_t i = 0; i < by_primal.size(); ++i) {
    if (specialisation_->needs_gradient(i)) gradients.push_back(std::move(by_primal[i]));
  }
  return gradients;
}

// ---- a call that was traced

variable_list AotNode::backward_of_trace(const variable_list& tangents, bool is_usual) {
  const OnStockEngine stock;
  has_failed_ = false;
  try {
    return backward_on_stand_ins(tangents, is_usual);
  } catch (...) {
    has_failed_ = true;
    throw;
  }
}

variable_list AotNode::backward_on_stand_ins(const variable_list& tangents, bool is_usual) {
  const bool create_graph = at::GradMode::is_enabled();
  if (live_->is_released() || has_learned_ || !has_usual_dispatch_state() || !are_plain(tangents))
    return live_->backward_as_itself(tangents, create_graph);
  // The user's code in a backward must run only once, so it is traced only with gradients that a program can be made for.
  const bool is_users = live_->has_users_backward();
  const bool all_flow = std::all_of(tangents.begin(), tangents.end(), [](const at::Tensor& each) { return each.defined(); });
  if (is_users && (!is_usual || !all_flow)) return live_->backward_as_itself(tangents, create_graph);
  if (create_graph && live_->had_saved_tensor_hooks()) {
    leave_to_the_function(kLosesHistory);
    const at::AutoGradMode no_grad(false);
    return with_error(live_->backward_as_itself(tangents, /*create_graph=*/false), kLosesHistory);
  }
  if (!is_usual) {
    {
      const at::AutoGradMode no_grad(false);
      learn({}, /*for_this_call=*/true, create_graph);
    }
    const auto pair = specialisation_->programs().next();
    const char* const why_not = create_graph && pair ? why_not_differentiated(*whole_of(pair)) : nullptr;
    if (why_not != nullptr) leave_to_the_function(why_not);
    if (why_not != nullptr || !are_as_given(pair) || !take_over()) return live_->backward_as_itself(tangents, create_graph);
    return create_graph ? differentiable_backward(tangents) : backward_by_ops(tangents);
  }
  variable_list given = tangents;
  if (is_users) std::transform(given.begin(), given.end(), given.begin(), as_contiguous);
  variable_list gradients = is_users ? users_backward(given) : live_->backward(given);
  if (live_->refusal()) {
    specialisation_->give_up();
    warn_once("a function runs eagerly from now on: in its backward, " + *live_->refusal());
    return gradients;
  }
  join_shared(gradients, given, live_->real_inputs(), live_->lifted());
  const bool comes_again = keeps_for_others_ || torch::autograd::get_current_graph_task_keep_graph();
  learn(given, comes_again, /*with_graph=*/false);
  if (comes_again && are_as_given(specialisation_->programs().next()))
    take_over();  // now, while the saved tensors are unmodified: LibTorch's engine has just checked
  return gradients;
}

variable_list AotNode::users_backward(const variable_list& tangents) {
  const auto before = ThreadSettings::now();
  variable_list gradients = live_->backward(tangents);
  if (!(ThreadSettings::now() == before)) live_->refuse(kChangesASetting);
  return gradients;
}

void AotNode::learn_without_backward() {
  const std::lock_guard lock(mutex_);
  if (live_->has_users_backward() || live_->had_saved_tensor_hooks()) return;
  const OnStockEngine stock;
  const c10::AutoGradMode no_grad(false);
  learn({}, /*for_this_call=*/false, /*with_graph=*/false);
}

// Compiles the traced call: one program for contiguous gradients of all results, from which those for some results are derived; and one for
// the gradients as they came, if some are missing or not contiguous. `tangents`: the incoming gradients of the backward traced last; empty
// if there was none. `for_this_call`: this call needs programs of its own, even if a fit already covers it. `with_graph`: its gradients are
// differentiated.
void AotNode::learn(const variable_list& tangents, bool for_this_call, bool with_graph) {
  has_learned_ = true;
  variable_list whole;
  bool is_whole = !tangents.empty();
  for (uint32_t i = 0; i < num_inputs(); ++i) {
    const at::Tensor tangent = i < tangents.size() && tangents[i].defined() ? tangents[i].detach() : at::Tensor();
    whole.push_back(tangent.defined() ? as_contiguous(tangent) : input_metadata(i).zeros_like());
    is_whole = is_whole && tangent.defined() && tangent_facts(tangent) == tangent_facts(whole.back());
  }
  const auto joint = [&] { return joint_of(*live_, *context_); };
  std::vector<Recorded> recorded;
  if (!tangents.empty()) recorded.push_back({joint(), tangents});
  if (!is_whole) {
    const auto random = capture::RandomState::of(live_->real_inputs());
    std::string why_not;
    try {
      live_->backward(whole);
      if (live_->refusal()) why_not = *live_->refusal();
    } catch (const std::exception& error) {  // a result has no derivative
      why_not = base::first_line(error);
    }
    random.restore();
    if (!why_not.empty()) {
      specialisation_->give_up();
      return warn_once("a function runs eagerly from now on: in its backward, " + why_not);
    }
    recorded.insert(recorded.begin(), {joint(), whole});
  }
  ForSecondOrder for_second_order = learn_second_order(whole, with_graph);
  for_second_order.is_asked_for = with_graph;
  make_programs(recorded, for_second_order, for_this_call);
}

// Traces the backward once more in grad mode, if some formula differs there (grad_mode_formulas.h) or this call's gradients are to be
// differentiated.
AotNode::ForSecondOrder AotNode::learn_second_order(const variable_list& tangents, bool is_asked_for) {
  if (live_->has_users_backward()) return {.why_not = "it calls custom Functions"};
  if (live_->loses_history()) return {.why_not = kLosesHistory};
  if (!is_asked_for && !live_->asks_for_grad_mode()) return {};
  const auto random = capture::RandomState::of(live_->real_inputs());
  ForSecondOrder found{.why_not = "its backward cannot be traced in grad mode"};
  try {
    live_->backward(tangents, /*create_graph=*/true);
    if (!live_->refusal()) found = {.joint = joint_of(*live_, *context_)};
  } catch (const std::exception& error) {
    HC_LOG(Aot, Info, "a function has no second derivative: {}", base::first_line(error));
  }
  random.restore();
  return found;
}

bool AotNode::has_symbols_of_capture() const {
  const std::vector<int64_t> at_capture = specialisation_->symbols_at_capture();  // the backed symbols, which come first
  return at_capture.size() <= bindings_.ints.size() && std::equal(at_capture.begin(), at_capture.end(), bindings_.ints.begin());
}

// The first of `recorded` has gradients of all results.
void AotNode::make_programs(const std::vector<Recorded>& recorded, const ForSecondOrder& for_second_order, bool for_this_call) {
  std::vector<at::Tensor> primals = live_->real_inputs();
  primals.insert(primals.end(), live_->lifted().begin(), live_->lifted().end());
  try {
    if (live_->symbols()->had_unguarded_read()) {
      // The program is valid only for these sizes.
      if (specialisation_->is_dynamic() && !specialisation_->is_exact() &&
          (specialisation_->programs().next() || !has_symbols_of_capture()))
        return;
      specialisation_->make_exact();
    }
    const auto family = specialisation_->family();
    const bool is_proved =
        family && family->proves_a_fit(*specialisation_, recorded.front().joint, tangents_facts(recorded.front().tangents));
    if (is_proved && !for_this_call) return;
    PairRequest request{context_->options, specialisation_->lasting(), specialisation_->with_gradients(), {}, [&] { return primals; }};
    request.leaves = specialisation_->leaves();
    request.is_for_others = recorded.size() > 1;
    request.with_graph = for_second_order.joint ? &*for_second_order.joint : nullptr;
    request.why_no_second_order = for_second_order.why_not;
    request.asks_for_second_order = for_second_order.is_asked_for;
    std::shared_ptr<const ProgramPair> whole;
    std::vector<std::shared_ptr<const ProgramPair>> made;
    for (const Recorded& each : recorded) {
      request.tangents = tangents_facts(each.tangents);
      request.example_tangents = each.tangents;
      auto pair = whole ? make_backward_beside(whole, each.joint, request) : compile_pair(each.joint, request);
      if (!whole) whole = pair;
      if (pair) made.push_back(std::move(pair));
    }
    request.example_tangents = recorded.front().tangents;
    ensure_backward(made, request);
    specialisation_->programs().add(std::move(made));
    if (is_proved) return;
    if (family) family->on_programs(*specialisation_);
    choose_layout(specialisation_, whole, context_->options);
  } catch (const std::exception& error) {
    specialisation_->give_up();
    warn_once(std::string("a function runs eagerly from now on: no program could be made of its backward: ") + base::first_line(error));
  }
}

// Second derivatives recompute from all arguments. LibTorch checks the versions of those that autograd has saved; this checks the others.
bool AotNode::are_as_given(const std::shared_ptr<const ProgramPair>& pair) const {
  if (!pair) return true;
  const auto& primals = whole_of(pair)->second_order.primals;
  return std::none_of(primals.begin(), primals.end(), [&](const SecondOrder::Primal& primal) {
    const at::Tensor given = live_->given(primal.number);
    return !primal.saved && given.defined() && !given.is_inference() && given._version() != live_->given_version(primal.number);
  });
}

// Turns this node from one of a traced call into one that ran a program, using what autograd has saved. Returns false if the program needs
// more than that.
bool AotNode::take_over() {
  const auto pair = specialisation_->programs().next();
  if (!pair || specialisation_->is_eager()) return false;
  std::vector<at::Tensor> primals, outputs(pair->joint.results), results;
  const std::vector<at::Tensor> saved = live_->saved_values(pair->saved_values);
  for (size_t i = 0; i < saved.size(); ++i) {
    if (pair->saved[i].from != Saved::From::Forward) continue;
    if (!saved[i].defined()) return false;
    outputs.resize(std::max<size_t>(outputs.size(), pair->saved[i].index + 1));
    outputs[pair->saved[i].index] = saved[i];
  }
  uint32_t number = 0;
  for (size_t i = 0; i < pair->joint.results; ++i) {
    results.push_back(live_->real_result(i));
    if (specialisation_->results()[i].is_differentiable) torch::autograd::impl::set_gradient_edge(results.back(), {getptr(), number++});
  }
  for (size_t i = 0; i < pair->joint.primals; ++i) primals.push_back(live_->given(i));
  set_saved(pair, primals, outputs, results);
  end(std::move(live_));
  return true;
}

// ---- a call that ran a program

const capture::NodeProgram* AotNode::program() const {
  if (has_several_streams()) return nullptr;  // inlined into another graph, its ops would run on one stream
  return pair_ && pair_->backward->has_plan() ? &pair_->of_node : nullptr;
}

std::optional<capture::RecomputedBackward> AotNode::recomputed_backward() {
  if (started_on_ || !pair_ || is_released_ || why_not_differentiated(*whole_of(pair_)) != nullptr) return std::nullopt;
  return backward_of_arguments();
}

std::optional<variable_list> AotNode::run_as_captured(const variable_list& gradients) {
  const std::lock_guard lock(mutex_);
  if (is_released_) refuse_second_time();
  const auto taken = taken_by(*pair_, gradients);
  if (!taken) return std::nullopt;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!(*taken)[i].is_same(gradients[i])) return std::nullopt;
  }
  std::vector<at::Tensor> inputs = unpack_saved();
  inputs.insert(inputs.end(), gradients.begin(), gradients.end());
  return of_edges(run_program(*pair_, std::move(inputs), Program::Way::AsCaptured));
}

// The tangents as the program takes them; nullopt if it is not for gradients like these.
std::optional<variable_list> AotNode::taken_by(const ProgramPair& pair, const variable_list& tangents) const {
  variable_list taken;
  for (uint32_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined() && pair.takes_zeros[i]) {
      taken.push_back(input_metadata(i).zeros_like());
      continue;
    }
    auto tangent = as_captured(tangents[i], pair.tangents[i]);
    if (!tangent) return std::nullopt;
    taken.push_back(std::move(*tangent));
  }
  return taken;
}

std::vector<at::Tensor> AotNode::unpack_saved() {
  std::vector<at::Tensor> saved;
  saved.reserve(saved_.size() + num_inputs());
  for (const SavedVariable& each : saved_) saved.push_back(each.unpack(getptr()));
  return saved;
}

variable_list AotNode::run_program(const ProgramPair& pair, std::vector<at::Tensor> inputs, Program::Way way) {
  context_->counts.backwards.fetch_add(1, std::memory_order_relaxed);
  variable_list gradients = pair.backward->run(std::move(inputs), bindings_, way);
  separate_gradients(gradients, SameTensor::Kept);
  return gradients;
}

// The programs with the same forward, and a backward for contiguous gradients of those results that have one here.
std::shared_ptr<const ProgramPair> AotNode::pair_for_results(const variable_list& tangents) {
  const auto& whole = whole_of(pair_);
  std::vector<bool> flows;
  std::vector<capture::Facts> facts;
  for (size_t i = 0; i < tangents.size(); ++i) {
    flows.push_back(tangents[i].defined());
    facts.push_back(flows.back() ? whole->tangents[i] : tangent_facts({}));
  }
  if (auto known = specialisation_->programs().for_gradients(facts, *pair_)) return known;
  PairRequest request{context_->options, specialisation_->lasting(), specialisation_->with_gradients(), std::move(facts), {}};
  request.backward_inputs = [&] {
    std::vector<at::Tensor> inputs = unpack_saved();
    for (uint32_t i = 0; i < tangents.size(); ++i) {
      const bool is_usual = !tangents[i].defined() || capture::is_plain(tangents[i]);
      inputs.push_back(!is_usual ? input_metadata(i).zeros_like() : tangents[i].defined() ? as_contiguous(tangents[i]) : at::Tensor());
    }
    return inputs;
  };
  request.leaves = specialisation_->leaves();
  auto made = make_backward_of_some(whole, flows, request);
  specialisation_->programs().add({made});
  return made;
}

variable_list AotNode::backward_of_program(const variable_list& tangents) {
  std::shared_ptr<const ProgramPair> pair = pair_;
  auto taken = taken_by(*pair, tangents);
  const auto are_as_they_came = [&] {
    return std::equal(taken->begin(), taken->end(), tangents.begin(),
                      [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  };
  if (!taken || !are_as_they_came()) {
    auto better = specialisation_->programs().for_gradients(tangents_facts(tangents), *pair_);  // it takes them without copies
    if (!better && !taken) better = pair_for_results(tangents);
    if (better && better != pair_) {
      taken = taken_by(*better, tangents);
      pair = std::move(better);
      if (taken) specialisation_->programs().note_miss(pair);
    }
    if (!taken) return backward_by_ops(tangents);
  }
  std::vector<at::Tensor> inputs = unpack_saved();
  for (at::Tensor& tangent : *taken) inputs.push_back(std::move(tangent));
  // The program frees its inputs as early as it can, and may reuse the memory of those that nothing else holds.
  if (!keeps_for_others_ && !torch::autograd::get_current_graph_task_keep_graph()) {
    saved_.clear();
    for_second_order_.clear();
    is_released_ = true;
  }
  return run_program(*pair, std::move(inputs), Program::Way::Best);
}

// Runs op by op, in this thread's dispatch state: for gradients of other kinds than the program's (batched, sparse, subclasses), and in
// modes that must see each op.
variable_list AotNode::backward_by_ops(const variable_list& tangents) {
  std::vector<at::Tensor> inputs = unpack_saved();
  const auto pair = pair_for_results(tangents);
  variable_list taken;
  for (uint32_t i = 0; i < tangents.size(); ++i) {
    const bool is_zero = !tangents[i].defined() && pair->takes_zeros[i];
    taken.push_back(is_zero ? input_metadata(i).zeros_like() : as_recorded(tangents[i]));
  }
  inputs.insert(inputs.end(), taken.begin(), taken.end());
  const capture::Graph& graph = *pair->backward->graph();
  std::unordered_map<uint32_t, at::Tensor> known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph.inputs[i].defined()) known.emplace(graph.inputs[i].index, std::move(inputs[i]));
  }
  std::vector<capture::ValueId> wanted;
  std::copy_if(graph.outputs.begin(), graph.outputs.end(), std::back_inserter(wanted),
               [](capture::ValueId value) { return value.defined(); });
  context_->counts.backwards.fetch_add(1, std::memory_order_relaxed);
  const OnStockEngine stock;
  graph.compute(wanted, known, bindings_);
  variable_list gradients;
  for (const capture::ValueId value : graph.outputs) gradients.push_back(value.defined() ? known.at(value.index) : at::Tensor());
  separate_gradients(gradients, SameTensor::Kept);
  return gradients;
}

}  // namespace hindcast::engine
