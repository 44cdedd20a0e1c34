// The first backward of a traced call: LibTorch's engine runs it over the nodes that autograd made, and it is recorded. Programs for later
// calls are made of it.

#include "base/first_line.h"
#include "base/interpreter_error.h"
#include "base/log.h"
#include "capture/function/random_state.h"
#include "codegen/partition/some_tangents.h"
#include "engine/aot/aot_node.h"
#include "engine/aot/choose_layout.h"
#include "engine/aot/family.h"
#include "engine/aot/names.h"
#include "engine/aot/warn_once.h"
#include "engine/call_state.h"
#include "engine/takeover.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_map>

namespace hindcast::engine {

using torch::autograd::variable_list;

capture::Joint joint_of(const capture::FunctionTrace& trace, const AotContext& context) {
  capture::Joint joint = with_tensor_names(trace.joint(), context.options, trace.lifted());
  joint.draws_atens = context.draws_atens.load(std::memory_order_relaxed);
  return joint;
}

namespace {

constexpr const char* kLosesHistory = "it reads a tensor through .data, or uses saved-tensor hooks, as a checkpoint does";

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
  for (const at::Tensor& tangent : tangents) known.insert_or_assign(storage_of(tangent), tangent);
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

std::vector<bool> flows_of(const variable_list& tangents) {
  std::vector<bool> flows;
  for (const at::Tensor& tangent : tangents) flows.push_back(tangent.defined());
  return flows;
}

}  // namespace

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

bool AotNode::may_be_recorded(const variable_list& tangents, const std::vector<bool>& wants) {
  if (live_->is_released() || has_learned_ || !has_usual_dispatch_state() || !are_plain(tangents)) return false;
  if (!live_->is_in_running_backward()) return !live_->would_run_more_user_code(tangents, wants);
  context_->keeps_tensors_in_losses.store(true, std::memory_order_relaxed);
  return false;
}

variable_list AotNode::backward_on_stand_ins(const variable_list& tangents, bool is_usual) {
  const bool create_graph = at::GradMode::is_enabled();
  const std::vector<bool> wants = wanted(live_->primal_count());
  if (!may_be_recorded(tangents, wants)) return live_->backward_as_itself(tangents, create_graph, wants);
  if (create_graph && live_->had_saved_tensor_hooks()) {
    leave_to_the_function(kLosesHistory);
    const at::AutoGradMode no_grad(false);
    return with_error(live_->backward_as_itself(tangents, /*create_graph=*/false, wants), kLosesHistory);
  }
  // The user's code in a backward must run only once, so it is traced only with gradients that a program can be made for.
  const bool is_users = live_->has_users_backward(), recomputes = live_->had_saved_tensor_hooks();
  const bool all_flow = std::all_of(tangents.begin(), tangents.end(), [](const at::Tensor& each) { return each.defined(); });
  if ((is_users && !all_flow) || ((is_users || recomputes) && !is_usual)) return live_->backward_as_itself(tangents, create_graph, wants);
  if (is_usual && !all_flow && gives_up_a_checkpoint()) return live_->backward_as_itself(tangents, create_graph, wants);
  if (!is_usual) return unusual_backward(tangents, create_graph);
  variable_list given = tangents;
  const auto as_program_takes_it = [](const at::Tensor& each) { return each.defined() ? as_contiguous(each) : each; };
  if (is_users || recomputes) std::transform(given.begin(), given.end(), given.begin(), as_program_takes_it);  // else it is recorded twice
  const bool is_tried = recomputes && !all_flow && !specialisation_->has_recorded_checkpoints();
  return is_tried ? checkpoints_backward(given) : recorded_backward(given, all_flow);
}

// For gradients of some results. A checkpoint recomputes by the user's code, which must run only once, and whether that can be recorded is
// known only afterwards. If it can, the backward of the next call is recorded for all results.
variable_list AotNode::checkpoints_backward(const variable_list& given) {
  variable_list gradients = live_->backward(given);
  if (live_->refusal()) {
    give_up("in its backward, " + *live_->refusal());
  } else {
    specialisation_->note_recorded_checkpoints();
    join_shared(gradients, given, live_->real_inputs(), live_->lifted());
  }
  return gradients;
}

void AotNode::give_up(const std::string& why) const {
  specialisation_->give_up();
  note_eager(why);
}

variable_list AotNode::recorded_backward(const variable_list& given, bool all_flow) {
  const bool is_users = live_->has_users_backward();
  const variable_list whole = is_users || all_flow ? variable_list() : with_zeros(given);
  auto found = whole.empty() ? std::nullopt : backward_for_all(whole, flows_of(given));
  const bool is_for_all = found.has_value();
  variable_list gradients = is_for_all ? std::move(*found) : is_users ? users_backward(given) : live_->backward(given);
  if (live_->refusal()) {
    give_up("in its backward, " + *live_->refusal());
    return gradients;
  }
  join_shared(gradients, given, live_->real_inputs(), live_->lifted());
  if (live_->had_saved_tensor_hooks() && !all_flow && !is_for_all) {
    give_up("in its backward, a checkpoint recomputes, and the part of the results without gradients cannot be separated");
  } else {
    const bool comes_again = keeps_for_others_ || torch::autograd::get_current_graph_task_keep_graph();
    is_for_all ? learn_for_all(whole, given, comes_again) : learn(given, comes_again, /*with_graph=*/false);
    if (comes_again && are_as_given(specialisation_->programs().next()))
      take_over();  // now, while the saved tensors are unmodified: LibTorch's engine has just checked
  }
  return gradients;
}

// A checkpoint that draws random numbers restores their state when it recomputes, which ends a recording. What it recomputes is the user's
// code, and runs once.
bool AotNode::gives_up_a_checkpoint() const {
  if (!live_->had_saved_tensor_hooks() || !live_->draws_random_numbers()) return false;
  give_up("a checkpoint in it draws random numbers");
  return true;
}

// The incoming gradients are batched, sparse or to be differentiated.
variable_list AotNode::unusual_backward(const variable_list& tangents, bool create_graph) {
  if (!learn_with_zeros(create_graph)) return live_->backward_as_itself(tangents, create_graph, wanted(live_->primal_count()));
  return create_graph ? differentiable_backward(tangents) : backward_by_ops(tangents);
}

// Records the backward with gradients of zeros, and makes this node one of a call that ran a program. False: it stays the node of a traced
// call. `with_graph`: its gradients are differentiated.
bool AotNode::learn_with_zeros(bool with_graph) {
  {
    const at::AutoGradMode no_grad(false);
    learn({}, /*for_this_call=*/true, with_graph);
  }
  const auto pair = specialisation_->programs().next();
  const char* const why_not = with_graph && pair ? why_not_differentiated(*whole_of(pair)) : nullptr;
  if (why_not != nullptr) leave_to_the_function(why_not);
  return why_not == nullptr && are_as_given(pair) && take_over();
}

bool AotNode::learn_for_graph() {
  if (live_->is_released() || has_learned_ || !has_usual_dispatch_state()) return false;
  if (live_->has_users_backward() || live_->had_saved_tensor_hooks()) return false;
  const OnStockEngine stock;
  return learn_with_zeros(/*with_graph=*/true);
}

// The gradients as the program for all results takes them, with zeros for those that are undefined. Empty: some gradients have another
// layout than that program takes, and need a recording of their own.
variable_list AotNode::with_zeros(const variable_list& tangents) const {
  variable_list all;
  for (uint32_t i = 0; i < num_inputs(); ++i) {
    if (tangents[i].defined() && tangent_facts(tangents[i]) != tangent_facts(as_contiguous(tangents[i]))) return {};
    all.push_back(tangents[i].defined() ? tangents[i] : input_metadata(i).zeros_like());
  }
  return all;
}

std::optional<variable_list> AotNode::backward_for_all(const variable_list& whole, const std::vector<bool>& flows) {
  const auto random = capture::RandomState::of(live_->real_inputs());
  auto gradients = live_->backward_for_all(whole, flows);
  if (!gradients) random.restore();
  return gradients;
}

variable_list AotNode::users_backward(const variable_list& tangents) {
  const auto before = ThreadSettings::now();
  variable_list gradients = live_->backward(tangents);
  if (!(ThreadSettings::now() == before)) live_->refuse(kChangesASetting);
  return gradients;
}

void AotNode::learn_without_backward(bool by_groups) {
  const std::lock_guard lock(mutex_);
  learns_by_groups_ = by_groups;
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
      base::forget_interpreter_error();
      why_not = base::first_line(error);
    }
    random.restore();
    if (!why_not.empty()) return give_up("in its backward, " + why_not);
    recorded.insert(recorded.begin(), {joint(), whole});
  }
  ForSecondOrder for_second_order = learn_second_order(whole, with_graph);
  for_second_order.is_asked_for = with_graph;
  make_programs(recorded, for_second_order, for_this_call);
}

// The same after backward_for_all(whole): the program for the gradients that flow is derived from the one for all.
void AotNode::learn_for_all(const variable_list& whole, const variable_list& tangents, bool for_this_call) {
  has_learned_ = true;
  std::vector<Recorded> recorded{{joint_of(*live_, *context_), whole}};
  if (!codegen::with_some_tangents(recorded[0].joint, flows_of(tangents))) {
    if (live_->had_saved_tensor_hooks()) return give_up("in its backward, a checkpoint recomputes, and reads strides of absent gradients");
    live_->backward(tangents);
    if (!live_->refusal()) recorded.push_back({joint_of(*live_, *context_), tangents});
  }
  make_programs(recorded, learn_second_order(whole, /*is_asked_for=*/false), for_this_call, tangents);
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
    base::forget_interpreter_error();
    HC_LOG(Aot, Info, "a function has no second derivative: {}", base::first_line(error));
  }
  random.restore();
  return found;
}

bool AotNode::has_symbols_of_capture() const {
  const std::vector<int64_t> at_capture = specialisation_->symbols_at_capture();  // the backed symbols, which come first
  return at_capture.size() <= bindings_.ints.size() && std::equal(at_capture.begin(), at_capture.end(), bindings_.ints.begin());
}

// The first of `recorded` has gradients of all results. `tangents`: those of this call, if they are not among the recorded ones.
void AotNode::make_programs(const std::vector<Recorded>& recorded, const ForSecondOrder& for_second_order, bool for_this_call,
                            const variable_list& tangents) {
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
    const bool derives = !tangents.empty() && recorded.size() == 1;
    request.is_for_others = recorded.size() > 1 || derives || learns_by_groups_;
    // Other calls of the same kind may have a node for each group.
    request.recomputes_results = has_separate_results_ && specialisation_->groups().size() > 1;
    request.has_own_joint = for_second_order.joint.has_value();
    request.with_graph = request.has_own_joint ? &*for_second_order.joint : nullptr;
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
    if (derives) {
      request.tangents = tangents_facts(tangents);
      request.example_tangents = tangents;
      made.push_back(make_backward_of_some(whole, flows_of(tangents), {}, request));
    }
    if (learns_by_groups_) add_backwards_of_groups(made, request);
    request.example_tangents = recorded.front().tangents;
    ensure_backward(made, request);
    specialisation_->programs().add(std::move(made));
    if (is_proved) return;
    if (family) family->on_programs(*specialisation_);
    choose_layout(specialisation_, whole, context_->options);
  } catch (const std::exception& error) {
    give_up("no program could be made of its backward: " + base::first_line(error));
  }
}

// `made` begins with the programs for all results.
void AotNode::add_backwards_of_groups(std::vector<std::shared_ptr<const ProgramPair>>& made, PairRequest request) const {
  const std::shared_ptr<const ProgramPair> whole = made.front();
  request.is_of_group = true;
  for (const auto& group : specialisation_->groups()) {
    std::vector<bool> flows(whole->tangents.size());
    for (const uint32_t result : group.results) flows[result] = true;
    request.tangents.clear();
    request.example_tangents.clear();
    for (uint32_t i = 0; i < flows.size(); ++i) {
      request.tangents.push_back(flows[i] ? whole->tangents[i] : tangent_facts({}));
      request.example_tangents.push_back(flows[i] ? input_metadata(i).zeros_like() : at::Tensor());
    }
    made.push_back(make_backward_of_some(whole, flows, {}, request));
  }
}

// Programs recompute from arguments that autograd may not have saved, so that LibTorch has not checked their versions.
bool AotNode::are_as_given(const std::shared_ptr<const ProgramPair>& pair) const {
  if (!pair) return true;
  const auto is_changed = [&](uint32_t primal) {
    const at::Tensor given = live_->given(primal);
    return given.defined() && !given.is_inference() && given._version() != live_->given_version(primal);
  };
  const auto& primals = whole_of(pair)->second_order.primals;
  return std::none_of(primals.begin(), primals.end(), [&](const SecondOrder::Primal& primal) { return is_changed(primal.number); }) &&
         std::none_of(pair->saved.begin(), pair->saved.end(),
                      [&](const Saved& saved) { return saved.from == Saved::From::Primal && is_changed(saved.index); });
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

}  // namespace hindcast::engine
