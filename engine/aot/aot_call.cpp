#include "engine/aot/aot_call.h"

#include "base/first_line.h"
#include "base/format.h"
#include "base/log.h"
#include "capture/function/dependent_inputs.h"
#include "capture/function/kept_tensors.h"
#include "capture/function/random_state.h"
#include "capture/graph/shared_memory.h"
#include "capture/graph/users_op.h"
#include "capture/recorder/recorder.h"
#include "codegen/partition/explain.h"
#include "engine/aot/choose_layout.h"
#include "engine/aot/drawn_again.h"
#include "engine/aot/names.h"
#include "engine/aot/same_results.h"
#include "engine/aot/warn_once.h"
#include "engine/call_state.h"
#include "engine/takeover.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace hindcast::engine {

using capture::FunctionTrace;
using capture::Returned;

detail::FunctionOutput run_eagerly(AotContext& context, const detail::FunctionCall& call) {
  const WatchedDraws watched(context, call.inputs);
  context.counts.eager.fetch_add(1, std::memory_order_relaxed);
  const uint64_t start = call.is_timed ? detail::processor_ns() : 0;
  detail::FunctionOutput output = call.function(call.inputs);
  if (call.is_timed) output.own_ns = detail::processor_ns() - start;
  if (capture::Recorder::current() == nullptr) output.gain = detail::Gain::None;
  return output;
}

detail::AotPrograms programs_of(const ProgramPair& pair) {
  const capture::ValueNames names = name_values(pair.joint);
  capture::Joint joint = pair.joint;
  joint.graph = with_names(joint.graph, names);
  detail::AotPrograms programs{joint.graph, with_names(pair.forward->graph(), names), nullptr, {}};
  if (pair.backward) {
    programs.backward = with_names(pair.backward->graph(), names);
    programs.explanation = codegen::explain(joint, {programs.forward, programs.backward, pair.saved_values});
  }
  return programs;
}

namespace {

void give_up_for(Specialisation& known, const capture::OtherResults& why) {
  known.give_up_at_all_sizes();
  note_eager(why.what());
}

at::Tensor copy_of(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return tensor.clone();
}

// For FunctionOutput::owned, where LibTorch has returned them.
void own_last(std::vector<at::Tensor>& tensors, size_t count) {
  for (size_t i = tensors.size() - count; i < tensors.size(); ++i) {
    at::Tensor& tensor = tensors[i];
    if (tensor.defined() && (tensor.use_count() > 1 || (tensor.has_storage() && tensor.storage().use_count() > 1)))
      tensor = copy_of(tensor);
  }
}

// Gives each result memory of its own: a plan may have made two results the same tensor, or one the same as an input.
void separate(std::vector<at::Tensor>& results, const std::vector<at::Tensor>& primals) {
  for (size_t i = 0; i < results.size(); ++i) {
    // A use count of 2: the program's outputs and the results.
    if (!results[i].defined() || !results[i].has_storage() || (results[i].use_count() == 2 && results[i].storage().use_count() == 1))
      continue;
    const auto shares = [&](const at::Tensor& other) { return capture::shares_memory(results[i], other); };
    const auto before = results.begin() + static_cast<std::ptrdiff_t>(i);
    if (!std::any_of(results.begin(), before, shares) && !std::any_of(primals.begin(), primals.end(), shares)) {
      // The same tensor is also saved for the backward. The user's needs a history of its own.
      results[i] = results[i].tensor_data();
      continue;
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    results[i] = results[i].clone();
  }
}

bool writes_to_shared_memory(const Specialisation& known, const std::vector<at::Tensor>& primals) {
  for (const capture::Result& result : known.results()) {
    if (!result.written) continue;
    for (size_t i = 0; i < primals.size(); ++i) {
      if (i != *result.written && capture::shares_memory(primals[*result.written], primals[i])) return true;
    }
  }
  return false;
}

// A program without a backward can only save its own time, and one that replaces a single node little more; under a guard it becomes part
// of a captured backward. A look-up that compares thousands of values may take longer than any program saves. Work of other threads and
// devices is not timed. Calls whose results or random numbers would differ are never mixed.
detail::Gain gain_of(const AotContext& context, const Specialisation& known, const ProgramPair& pair) {
  const bool has_cheap_lookup = !context.has_costly_lookup.load(std::memory_order_relaxed);
  const bool may_gain_nothing = !has_cheap_lookup || !known.has_gradients() || (known.has_one_node() && current_options() == nullptr);
  const bool is_timeable = may_gain_nothing && !known.draws_random_numbers() && pair.devices.empty() && context.options.async;
  if (!is_timeable || asks_for_equal_bits()) return detail::Gain::Some;
  return known.has_gradients() ? detail::Gain::PerhapsWithBackward : detail::Gain::Perhaps;
}

bool has_traced_numbers(const Specialisation& known, const std::vector<at::Tensor>& outputs) {
  const std::vector<capture::AskedNumber>& numbers = known.numbers();
  return std::all_of(numbers.begin(), numbers.end(),
                     [&](const capture::AskedNumber& asked) { return same_number(outputs[asked.result].item(), asked.number); });
}

// Autograd sees it as it sees the input: a function may ask for requires_grad, or take gradients.
at::Tensor copy_for_comparison(const at::Tensor& input) {
  at::Tensor copy;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    copy = input.clone();
  }
  if (!input.requires_grad()) return copy;
  copy.requires_grad_();
  if (input.is_leaf()) return copy;
  const c10::AutoGradMode grad(true);
  return copy.clone();
}

/// While alive, the generators continue at the earlier state.
class DrawsAgain {
 public:
  explicit DrawsAgain(const capture::RandomState& before) : after_(before.now()) { before.restore(); }
  ~DrawsAgain() { after_.restore(); }
  DrawsAgain(const DrawsAgain&) = delete;
  DrawsAgain& operator=(const DrawsAgain&) = delete;

 private:
  const capture::RandomState after_;
};

}  // namespace

std::vector<at::Tensor> AotCall::primals_of(const Specialisation& known) const {
  std::vector<at::Tensor> primals = call_.inputs;
  for (at::Tensor& tensor : known.find_lifted()) primals.push_back(std::move(tensor));
  return primals;
}

// Makes the node the history of the results, or of those of `group`. It has an input for each result: no gradient arrives at those of other
// groups.
void AotCall::connect(const capture::NodePtr& node, const Specialisation& known, std::vector<at::Tensor>& results,
                      const std::vector<at::Tensor>& primals, const capture::FunctionTrace::HistoryGroup* group) const {
  const auto is_in = [](const std::vector<uint32_t>& those, uint32_t i) { return std::find(those.begin(), those.end(), i) != those.end(); };
  torch::autograd::edge_list edges;
  for (uint32_t i = 0; i < primals.size(); ++i) {
    if (!known.needs_gradient(i)) continue;
    const bool leads_there = group == nullptr || is_in(group->primals, i);
    edges.push_back(leads_there ? torch::autograd::impl::gradient_edge(primals[i]) : torch::autograd::Edge());
  }
  node->set_next_edges(std::move(edges));
  for (uint32_t i = 0, number = 0; i < results.size(); ++i) {
    if (!known.results()[i].is_differentiable) continue;
    const uint32_t input = node->add_input_metadata(results[i]);
    if (group == nullptr || is_in(group->results, number)) torch::autograd::impl::set_gradient_edge(results[i], {node, input});
    ++number;
  }
}

// ---- a call with a known specialisation

std::optional<detail::FunctionOutput> AotCall::run(const std::shared_ptr<Specialisation>& known, capture::Bindings bindings) {
  if (known->is_eager()) return run_eagerly(*context_, call_);
  if (known->needs_callers_graph(call_.inputs)) {
    note_eager_call(capture::kNeedsCallersGraph);
    return run_eagerly(*context_, call_);
  }
  if (auto pair = known->programs().next()) {
    pair = with_numbers_for_now(*context_, *known, std::move(pair));
    if (pair == nullptr) return run_eagerly(*context_, call_);
    const size_t every = context_->options.check_every;
    const bool is_compared = every != 0 && context_->counts.calls.load(std::memory_order_relaxed) % every == 0;
    return is_compared ? run_and_compare(known, pair, std::move(bindings)) : run_programs(known, pair, std::move(bindings));
  }
  if (!known->is_worth_a_trace()) return run_eagerly(*context_, call_);
  return trace_again(known, bindings);
}

void AotCall::add_node(const std::shared_ptr<Specialisation>& known, const std::shared_ptr<const ProgramPair>& pair,
                       const capture::Bindings& bindings, detail::Gain gain, const std::vector<at::Tensor>& primals,
                       const std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& results) {
  const auto make = [&](const capture::FunctionTrace::HistoryGroup* group) {
    const auto node = capture::own_node(new AotNode(context_, known, bindings));
    connect(node, *known, results, primals, group);
    if (call_.has_separate_results) node->keep_for_other_results(group);
    return node;
  };
  const auto complete = [&](AotNode& node) {
    if (call_.is_timed && gain == detail::Gain::PerhapsWithBackward) node.time_backward();
    node.set_saved(pair, primals, outputs, results);
    node.note_streams(pair->devices);
  };
  if (!call_.has_separate_results || known->may_have_one_node(primals)) return complete(*make(nullptr));
  std::vector<decltype(make(nullptr))> nodes;
  for (const auto& group : known->groups()) nodes.push_back(make(&group));
  for (const auto& node : nodes) complete(*node);
}

std::optional<detail::FunctionOutput> AotCall::run_programs(const std::shared_ptr<Specialisation>& known,
                                                            const std::shared_ptr<const ProgramPair>& pair, capture::Bindings bindings) {
  const detail::Gain gain = gain_of(*context_, *known, *pair);
  if (call_.is_timed && gain != detail::Gain::Some && context_->back_off.is_functions_turn(known.get())) {
    context_->counts.eager.fetch_add(1, std::memory_order_relaxed);
    return detail::FunctionOutput{.gain = gain, .program = known.get(), .is_functions = true};
  }
  const std::vector<at::Tensor> primals = primals_of(*known);
  if (writes_to_shared_memory(*known, primals)) {
    note_eager_call("it writes to an input that shares memory with another");
    return run_eagerly(*context_, call_);
  }
  const bool may_differ = !known->numbers().empty() || known->has_data_sizes();
  const bool may_draw_again = known->draws_random_numbers() && (may_differ || known->writes() || known->calls_users_operator());
  const auto random = may_draw_again ? capture::RandomState::of(primals) : capture::RandomState();
  std::optional<std::vector<at::Tensor>> made;
  try {
    made = pair->forward->run_and_bind(primals, bindings);
  } catch (const capture::OtherResults& error) {  // the operator has run, and runs again: once
    random.restore();
    give_up_for(*known, error);
    return run_eagerly(*context_, call_);
  } catch (const std::exception&) {
    // A program writes last, so nothing has happened yet but draws and calls of users' operators. The function may read another number than
    // the traced one (compared only below), catch the error, or write before it throws. A compiler's own error is the caller's to see.
    const bool is_repeatable = pair->forward->has_plan() && !known->calls_users_operator();
    if (!may_differ && (!is_repeatable || (known->draws_random_numbers() && !may_draw_again))) throw;
    random.restore();
    if (may_differ) context_->counts.numbers_differed.fetch_add(1, std::memory_order_relaxed);
    return run_eagerly(*context_, call_);
  }
  if (!made) {
    random.restore();
    return std::nullopt;
  }
  std::vector<at::Tensor> outputs = std::move(*made);
  if (!has_traced_numbers(*known, outputs)) {
    context_->counts.numbers_differed.fetch_add(1, std::memory_order_relaxed);
    random.restore();
    if (known->with_other_numbers().add()) {
      known->give_up();
      note_eager("a number that it reads, as by item(), differs from call to call");
    }
    return run_eagerly(*context_, call_);
  }
  known->with_other_numbers().end();
  context_->counts.hits.fetch_add(1, std::memory_order_relaxed);
  std::vector<at::Tensor> results(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(known->results().size()));
  separate(results, primals);
  if (known->has_gradients()) add_node(known, pair, bindings, gain, primals, outputs, results);
  outputs.clear();
  return detail::FunctionOutput{.tensors = finish(*known, std::move(results), primals, bindings, /*is_written=*/false),
                                .shape = known->shape(),
                                .gain = gain,
                                .program = known.get()};
}

// Also runs the function itself, on copies, with the program's random numbers, and compares.
std::optional<detail::FunctionOutput> AotCall::run_and_compare(const std::shared_ptr<Specialisation>& known,
                                                               const std::shared_ptr<const ProgramPair>& pair, capture::Bindings bindings) {
  const bool writes_outside = std::any_of(known->results().begin(), known->results().end(), [&](const capture::Result& result) {
    return result.written && *result.written >= call_.inputs.size();
  });
  if (writes_outside) return run_programs(known, pair, std::move(bindings));  // it would write twice
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : call_.inputs) copies.push_back(input.defined() ? copy_for_comparison(input) : input);
  const auto before = capture::RandomState::of(call_.inputs);
  std::optional<detail::FunctionOutput> output = run_programs(known, pair, std::move(bindings));
  const bool is_hit = output && output->program != nullptr && !output->is_functions;
  if (!is_hit) return output;  // the function runs: there is nothing to compare it with
  std::vector<at::Tensor> expected;
  {
    const DrawsAgain draws(before);
    expected = call_.function(copies).tensors;
  }
  if (const auto difference = find_difference(output->tensors, expected)) {
    throw std::runtime_error(
        base::format("hindcast::aot_function: the function's result differs from that of its traced program: {}. Something that it reads "
                     "besides its arguments has changed (a number that a lambda captured, a branch): make it an argument",
                     *difference));
  }
  return output;
}

std::vector<at::Tensor> AotCall::finish(const Specialisation& known, std::vector<at::Tensor> results,
                                        const std::vector<at::Tensor>& primals, const capture::Bindings& bindings, bool is_written) {
  for (size_t i = 0; i < results.size(); ++i) {
    const capture::Result& result = known.results()[i];
    if (!result.written) continue;
    at::Tensor target = primals[*result.written];
    if (is_written && !result.is_differentiable) continue;  // the argument itself was written, and its version counted
    const bool has_versions = !target.is_inference();
    c10::VariableVersion version = has_versions ? torch::autograd::impl::version_counter(target) : c10::VariableVersion();
    const uint32_t before = has_versions ? version.current_version() : 0;
    if (result.is_differentiable) {
      target.copy_(results[i]);
    } else {
      const at::AutoDispatchBelowADInplaceOrView below;
      target.copy_(results[i]);
    }
    if (has_versions) version.set_version(before + (is_written ? 0 : result.versions));
  }
  std::vector<at::Tensor> tensors;
  for (const Returned& returned : known.returned()) {
    if (returned.same_as) {
      tensors.push_back(tensors[*returned.same_as]);
      continue;
    }
    if (returned.from == Returned::From::Nothing) {
      tensors.emplace_back();
      continue;
    }
    const at::Tensor& whole = returned.from == Returned::From::Primal ? primals[returned.index] : results[returned.index];
    if (returned.is_itself || returned.views.empty()) {
      tensors.push_back(returned.is_itself || returned.from == Returned::From::Result ? whole : whole.detach());
      continue;
    }
    const c10::AutoGradMode grad(returned.with_autograd);
    tensors.push_back(known.view(whole, returned.views, bindings));
  }
  for (const size_t i : known.copied()) tensors[i] = copy_of(tensors[i]);
  return tensors;
}

// ---- a call that is traced

DynamicRow AotCall::choose_symbols(const InputFacts& facts, const Family& family) const {
  if (context_->options.dynamic == Dynamic::Never || family.sizes_for(facts.row) == Family::Sizes::Plain) return {};
  std::vector<capture::Facts> earlier;
  std::set<int64_t> pinned;
  const auto others = family.all();
  for (const auto& other : *others) {
    if (is_compatible(other->row(), facts.row, facts.kinds)) earlier.push_back(other->row());
  }
  for (const at::Tensor& input : call_.inputs) {
    if (input.defined() && input.requires_grad() && input.is_leaf()) pinned.insert(input.sizes().begin(), input.sizes().end());
  }
  return earlier.empty() ? DynamicRow() : choose_dynamic({facts.row, earlier, facts.kinds, pinned});
}

AotCall::Recording AotCall::record(const FunctionTrace::SizesOf& sizes, bool allows_unguarded_reads) {
  context_->counts.traces.fetch_add(1, std::memory_order_relaxed);
  install();  // tells the trace of backwards in the function
  Recording recording;
  auto trace = std::make_unique<FunctionTrace>(sizes, allows_unguarded_reads, /*continues_eagerly=*/context_->options.fallback);
  trace->set_bitwise(asks_for_equal_bits());
  // Once per function: if it keeps tensors, so do its later calls.
  trace->set_collects_all_garbage(context_->kept_tensors.load(std::memory_order_relaxed) == 0);
  const auto add_accumulated = [&] {
    for (const auto& [input, gradient] : trace->accumulated()) {
      at::Tensor& grad = call_.inputs[input].mutable_grad();
      grad = grad.defined() ? grad + gradient : gradient;
    }
  };
  try {
    const OnStockEngine stock;  // a backward inside the function is part of the trace
    const auto run = [&](const std::vector<at::Tensor>& stand_ins) {
      const auto before = ThreadSettings::now();
      recording.output = call_.function(stand_ins);
      if (!(ThreadSettings::now() == before)) trace->refuse(kChangesASetting);
      return std::move(recording.output.tensors);
    };
    trace->forward(run, call_.inputs);
  } catch (const capture::NotTraced& error) {
    if (!context_->options.fallback)
      throw std::runtime_error(base::format("hindcast::aot_function: the function cannot be traced: {}", base::first_line(error)));
    recording.why_not = base::first_line(error);
    recording.output = run_eagerly(*context_, call_);
    return recording;
  } catch (...) {
    add_accumulated();
    throw;
  }
  add_accumulated();
  if (!trace->refusal()) {
    recording.trace = std::move(trace);
    return recording;
  }
  context_->counts.eager.fetch_add(1, std::memory_order_relaxed);
  recording.why_not = *trace->refusal();
  recording.keeps_tensors = trace->keeps_tensors();
  recording.has_no_second_derivatives = trace->had_saved_tensor_hooks();
  if (recording.keeps_tensors) context_->kept_tensors.fetch_add(1, std::memory_order_relaxed);
  recording.output.tensors = trace->take_outputs();
  own_last(recording.output.tensors, recording.output.owned);
  return recording;
}

detail::FunctionOutput AotCall::trace_new(Family& family) {
  InputFacts facts(call_.inputs, call_.is_static, /*with_kinds=*/true);
  if (context_->keeps_tensors_in_losses.load(std::memory_order_relaxed)) {
    note_eager_call(capture::kKeepsATensor);
    family.add(std::make_shared<Specialisation>(std::move(facts)));
    return run_eagerly(*context_, call_);
  }
  DynamicRow dynamic = choose_symbols(facts, family);
  const bool allows_unguarded_reads = family.sizes_for(facts.row) == Family::Sizes::Free;
  Recording recording = record(sizes_of_inputs(facts.row, facts.first, dynamic), allows_unguarded_reads);
  if (!recording.trace) {
    if (recording.keeps_tensors && family.note_escape()) return recording.output;
    note_eager_call(recording.why_not);
    if (recording.has_no_second_derivatives) family.give_up();  // so that only this call has none, not one of each size
    family.add(std::make_shared<Specialisation>(std::move(facts)));
    return recording.output;
  }
  const FunctionTrace& trace = *recording.trace;
  if (!trace.lifted().empty())
    HC_LOG(Aot, Info, "a function reads {} tensors from outside: they are inputs by identity", trace.lifted().size());
  const auto known = std::make_shared<Specialisation>(std::move(facts), std::move(dynamic), trace, recording.output, call_.has_owner);
  known->set_family(family.weak_from_this());
  detail::FunctionOutput result = finish_trace(known, std::move(recording.trace));
  if (known->is_dropped()) return result;
  family.add(known);
  family.on_programs(*known);
  return result;
}

detail::FunctionOutput AotCall::trace_again(const std::shared_ptr<Specialisation>& known, const capture::Bindings& now) {
  Recording recording = record(known->sizes_of(now), /*allows_unguarded_reads=*/true);
  if (!recording.trace) {
    known->give_up();
    note_eager(recording.why_not);
    return recording.output;
  }
  std::shared_ptr<Specialisation> of = known;
  if (!known->is_like(*recording.trace)) {
    // The function behaved differently from before; `known` keeps waiting for a call like the first.
    of = std::make_shared<Specialisation>(InputFacts(call_.inputs), known->dynamic_at(now), *recording.trace, recording.output,
                                          call_.has_owner);
    const auto family = known->family();
    if (family && of->has_data_sizes() && family->may_trace_for_data_sizes()) {
      of->set_family(family);
      family->add(of);
    }
  }
  return finish_trace(of, std::move(recording.trace));
}

// For results with different histories. A later call makes a node for each group of them. In this one, LibTorch's own nodes are their
// history.
void AotCall::learn_alone(const std::shared_ptr<Specialisation>& known, std::unique_ptr<FunctionTrace> trace) const {
  constexpr size_t kMostGroups = 6;  // each has programs of its own
  if (known->groups().size() <= kMostGroups) {
    const auto node = capture::own_node(new AotNode(context_, known, capture::bindings_at_capture(*trace->symbols())));
    for (size_t i = 0; i < known->results().size(); ++i) {
      if (known->results()[i].is_differentiable) node->add_input_metadata(trace->real_result(i));
    }
    node->set_live(std::move(trace));
    node->keep_for_other_results();
    node->learn_without_backward(/*by_groups=*/true);
  }
  if (known->programs().next() == nullptr) known->give_up();
}

detail::FunctionOutput AotCall::finish_trace(const std::shared_ptr<Specialisation>& known, std::unique_ptr<FunctionTrace> trace) {
  if (trace->draws_random_numbers()) note_draws(*context_);
  const std::vector<at::Tensor> primals = primals_of(*known);
  if (call_.has_separate_results && known->has_related_results()) {
    known->give_up();
    trace.reset();
    return run_eagerly(*context_, call_);
  }
  if (call_.has_separate_results && !known->may_have_one_node(primals)) {
    learn_alone(known, std::move(trace));
    return run_eagerly(*context_, call_);
  }
  const capture::Bindings bindings = capture::bindings_at_capture(*trace->symbols());
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < known->results().size(); ++i) {
    const capture::Result& result = known->results()[i];
    results.push_back(trace->real_result(i));
    if (!result.written || !result.is_differentiable) continue;
    const at::AutoDispatchBelowADInplaceOrView below;
    results.back() = results.back().clone();
  }
  if (!trace->accumulated().empty()) {
    known->give_up();
    note_eager_call("it calls backward(), which writes to .grad of its arguments");
  }
  if (known->has_gradients()) {
    const auto node = capture::own_node(new AotNode(context_, known, bindings));
    connect(node, *known, results, primals);
    if (call_.has_separate_results) node->keep_for_other_results();
    node->note_streams(devices_of(*trace->joint().graph));
    node->set_live(std::move(trace));
    detail::FunctionOutput output{finish(*known, std::move(results), primals, bindings, /*is_written=*/true), known->shape()};
    if (known->learns_at_once()) node->learn_without_backward();
    return output;
  }
  const capture::Joint joint = joint_of(*trace, *context_);
  const auto family = known->family();
  if (family && family->proves_a_fit(*known, joint, {})) {
    known->drop();
  } else {
    const auto pair = compile_pair(joint, {context_->options, {}, {}, {}, [&] { return primals; }});
    known->programs().add({pair});
    choose_layout(known, pair, context_->options);
  }
  const auto made = trace->take_made();
  trace.reset();
  known->look_for_escapes(made);
  return {finish(*known, std::move(results), primals, bindings, /*is_written=*/true), known->shape()};
}

}  // namespace hindcast::engine
