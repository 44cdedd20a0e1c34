#include "engine/aot/aot_node.h"

#include "base/first_line.h"
#include "base/format.h"
#include "base/log.h"
#include "capture/function/random_state.h"
#include "capture/graph/shared_memory.h"
#include "capture/graph/users_op.h"
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

// Facts of the gradients that flow into the group's results, as the program for all results takes them.
std::vector<capture::Facts> facts_of(const capture::FunctionTrace::HistoryGroup& group, const std::vector<capture::Facts>& all) {
  std::vector<capture::Facts> facts(all.size(), tangent_facts({}));
  for (const uint32_t result : group.results) facts[result] = all[result];
  return facts;
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
  if (group_ != nullptr) {
    auto known = specialisation_->programs().for_gradients(facts_of(*group_, whole_of(pair_)->tangents), {}, *pair_);
    is_for_group_ = known != nullptr;
    if (is_for_group_) pair_ = std::move(known);
  }
  const auto is_unread = [&](const std::vector<bool>& needs, size_t i) { return is_for_group_ && !needs.empty() && !needs[i]; };
  saved_.reserve(pair_->saved.size());
  for (size_t i = 0; i < pair_->saved.size(); ++i) {
    const Saved& saved = pair_->saved[i];
    if (is_unread(pair_->needs_saved, i)) {
      saved_.emplace_back();
      continue;
    }
    switch (saved.from) {
      case Saved::From::Primal:
        saved_.emplace_back(specialisation_->is_written(saved.index)
                                ? copy_of(primals[saved.index], specialisation_->needs_gradient(saved.index))
                                : primals[saved.index],
                            false);
        break;
      case Saved::From::Result: {
        const at::Tensor& result = results[saved.index];
        const bool is_own = result.defined() && result.grad_fn().get() == this;
        // To save the other node's result itself would make a reference cycle.
        const bool is_anothers = !is_own && result.defined() && result.grad_fn() != nullptr;
        saved_.emplace_back(is_anothers ? result.tensor_data() : result, is_own);
        break;
      }
      case Saved::From::Forward:
        saved_.emplace_back(with_version_of(outputs[saved.index], results), false);
        break;
    }
  }
  const SecondOrder& second_order = whole_of(pair_)->second_order;
  if (second_order.why_not != nullptr) return;
  for (size_t i = 0; i < second_order.primals.size(); ++i) {
    const auto& [number, saved] = second_order.primals[i];
    const at::Tensor& primal = primals[number];
    if (saved || !primal.defined() || specialisation_->is_written(number) || is_unread(pair_->needs_primals, i)) continue;
    for_second_order_.push_back({number, primal, primal.is_inference() ? 0 : static_cast<uint32_t>(primal._version())});
  }
}

void AotNode::keep_for_other_results(const capture::FunctionTrace::HistoryGroup* group) {
  has_separate_results_ = true;
  group_ = group;
  keeps_for_others_ = (group == nullptr ? num_inputs() : group->results.size()) > 1;
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

bool AotNode::are_plain(const variable_list& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return !tensor.defined() || capture::is_plain(tensor); });
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

const capture::NodeProgram* AotNode::program() const {
  if (has_several_streams()) return nullptr;  // inlined into another graph, its ops would run on one stream
  return pair_ && pair_->backward->has_plan() ? &pair_->of_node : nullptr;
}

std::optional<capture::RecomputedBackward> AotNode::recomputed_backward() {
  if (live_ && !learn_for_graph()) return std::nullopt;
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
  variable_list gradients;
  try {
    gradients = pair.backward->run(std::move(inputs), bindings_, way);
  } catch (const capture::OtherResults& error) {
    specialisation_->give_up_at_all_sizes();
    note_eager(std::string("in its backward, ") + error.what());
    throw;
  }
  separate_gradients(gradients, SameTensor::Kept);
  return gradients;
}

// grad(result, x) asks for the gradients of some arguments.
std::vector<bool> AotNode::wanted(size_t primals) const {
  const auto* const info = torch::autograd::get_current_graph_task_exec_info();
  if (info == nullptr || info->empty()) return {};
  std::vector<bool> wants;
  bool are_all = true;
  for (size_t i = 0, edge = 0; i < primals; ++i) {
    const bool has_edge = specialisation_->needs_gradient(i);
    wants.push_back(has_edge && task_should_compute_output(edge++));
    are_all = are_all && wants.back() == has_edge;
  }
  return are_all ? std::vector<bool>() : wants;
}

// The programs with the same forward, and a backward for contiguous gradients of those results that have one here.
std::shared_ptr<const ProgramPair> AotNode::pair_for(const variable_list& tangents, const std::vector<bool>& wants) {
  const auto& whole = whole_of(pair_);
  std::vector<bool> flows;
  std::vector<capture::Facts> facts;
  for (size_t i = 0; i < tangents.size(); ++i) {
    flows.push_back(tangents[i].defined());
    facts.push_back(flows.back() ? whole->tangents[i] : tangent_facts({}));
  }
  if (auto known = specialisation_->programs().for_gradients(facts, wants, *pair_)) return known;
  if (!wants.empty() && !specialisation_->programs().has_room_for_some_primals()) return pair_for(tangents, {});
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
  auto made = make_backward_of_some(whole, flows, wants, request);
  if (wants.empty()) {
    specialisation_->programs().add({made});
  } else {
    specialisation_->programs().add_beside(made);
  }
  return made;
}

variable_list AotNode::backward_of_program(const variable_list& tangents) {
  const std::vector<bool> wants = wanted(whole_of(pair_)->joint.primals);
  std::shared_ptr<const ProgramPair> pair = wants.empty() ? pair_ : pair_for(tangents, wants);
  auto taken = taken_by(*pair, tangents);
  const auto are_as_they_came = [&] {
    return std::equal(taken->begin(), taken->end(), tangents.begin(),
                      [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  };
  if (!taken || (wants.empty() && !are_as_they_came())) {
    auto better = specialisation_->programs().for_gradients(tangents_facts(tangents), {}, *pair_);  // it takes them without copies
    if (!better && !taken) better = pair_for(tangents, {});
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
  const auto pair = pair_for(tangents, {});
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
