#include "engine/aot/program_pair.h"

#include "base/log.h"
#include "base/trace.h"
#include "codegen/partition/known_values.h"
#include "codegen/partition/random_numbers.h"
#include "codegen/partition/some_gradients.h"
#include "codegen/partition/some_tangents.h"
#include "codegen/partition/split.h"
#include "engine/aot/names.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/trace/graph_records.h"
#include "engine/options/use_options.h"
#include "hindcast/detail/footprint.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>

namespace hindcast::engine {

using capture::Facts;
using capture::ValueId;

namespace {

Saved find_saved(const capture::Joint& joint, ValueId value, uint32_t number) {
  const auto place = [&](auto list) { return static_cast<uint32_t>(std::find(list.begin(), list.end(), value) - list.begin()); };
  if (const uint32_t primal = place(joint.primal_values()); primal < joint.primals) return {Saved::From::Primal, primal};
  if (const uint32_t result = place(joint.result_values()); result < joint.results) return {Saved::From::Result, result};
  return {Saved::From::Forward, joint.results + number};
}

// True if kernels may draw their own random numbers: the programs' results are not compared with the function's.
bool may_draw_in_kernels(const AotOptions& options, const capture::Joint& joint) {
  if (!joint.graph->unbacked.empty()) return false;  // the count of numbers must be known before the first step
  return !joint.draws_atens && !options.fallback_random && options.check_every == 0 && both_have_kernels(options, *joint.graph);
}

std::shared_ptr<const capture::Graph> numbered(const std::shared_ptr<const capture::Graph>& graph, std::string_view role, bool is_bitwise) {
  auto copy = std::make_shared<capture::Graph>(*graph);
  copy->id = static_cast<uint32_t>(stats_recorder().add_graph());
  copy->bitwise = is_bitwise;
  HC_LOG(AotGraphs, Info, "{}", copy->print());
  if (base::tracing()) record_graph(*copy, role);
  return copy;
}

void record_joint_of(const capture::Graph& joint, const ProgramPair& pair) {
  const uint32_t forward = pair.forward->graph()->id;
  record_joint(joint, forward, pair.backward ? pair.backward->graph()->id : forward);
}

}  // namespace

bool both_have_kernels(const AotOptions& options, const capture::Graph& joint) {
  const auto has_kernels = [](const ProgramCompiler& compiler) {
    return !compiler.function() && replay_of(compiler.compiler() ? compiler.compiler() : default_compiler()) == Replay::Kernels;
  };
  return !joint.bitwise && has_kernels(options.fw_compiler) && has_kernels(options.bw_compiler);
}

Facts tangent_facts(const at::Tensor& tangent) {
  Facts facts;
  if (!tangent.defined()) return {0};
  const at::Tensor plain = tangent.requires_grad() ? tangent.tensor_data() : tangent;
  capture::append_tensor_facts(plain, facts);
  if (capture::is_plain(plain)) facts.erase(facts.begin() + 1, facts.begin() + 1 + plain.dim());
  return facts;
}

std::vector<Facts> tangents_facts(const torch::autograd::variable_list& tangents) {
  std::vector<Facts> facts;
  for (const at::Tensor& tangent : tangents) facts.push_back(tangent_facts(tangent));
  return facts;
}

at::Tensor as_contiguous(const at::Tensor& tangent) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const bool is_odd = tangent.is_conj() || tangent.is_neg() || tangent.unsafeGetTensorImpl()->is_wrapped_number() || tangent.is_inference();
  if (!is_odd) return tangent.contiguous();
  return at::empty(tangent.sizes(), tangent.options()).copy_(tangent);
}

std::optional<at::Tensor> as_captured(const at::Tensor& tangent, const Facts& captured) {
  if (tangent_facts(tangent) == captured) return tangent;
  if (!tangent.defined() || captured == Facts{0}) return std::nullopt;
  at::Tensor copy = as_contiguous(tangent);
  if (tangent_facts(copy) != captured) return std::nullopt;
  return copy;
}

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::vector<c10::Device> devices_of(const capture::Graph& graph) {
  std::vector<c10::Device> devices;
  for (const capture::Value& value : graph.values) {
    if (value.device.is_cpu() || value.device.is_meta()) continue;
    if (std::find(devices.begin(), devices.end(), value.device) == devices.end()) devices.push_back(value.device);
  }
  return devices;
}

namespace {

bool wants_names(const AotOptions& options) {
  return options.fw_compiler.is_users() || options.bw_compiler.is_users() || base::tracing() ||
         base::enabled(base::Channel::AotGraphs, base::Level::Info);
}

std::vector<at::Tensor> example_inputs(const ProgramPair& pair, const PairRequest& request) {
  if (request.backward_inputs) return request.backward_inputs();
  const auto primals = request.primals();
  const Program by_ops(pair.forward->graph(), compilers::eager(), false, {});
  const auto outputs = by_ops.run(primals, capture::bindings_at_capture(*pair.joint.graph->symbols));
  std::vector<at::Tensor> inputs;
  for (const Saved& saved : pair.saved) {
    inputs.push_back(saved.from == Saved::From::Primal ? primals[saved.index] : outputs[saved.index]);
  }
  inputs.insert(inputs.end(), request.example_tangents.begin(), request.example_tangents.end());
  return inputs;
}

void add_backward(ProgramPair& pair, std::shared_ptr<const capture::Graph> backward, const PairRequest& request) {
  const AotOptions& options = request.options;
  if (wants_names(options)) backward = with_names(backward, name_values(pair.joint));
  pair.tangents = request.tangents;
  pair.takes_zeros.resize(request.tangents.size());
  const auto examples = [&] { return example_inputs(pair, request); };
  pair.backward = std::make_shared<Program>(numbered(backward, "backward of a function", pair.joint.graph->bitwise), options.bw_compiler,
                                            options.async, examples, request.leaves);
  if (base::tracing()) record_joint_of(*pair.joint.graph, pair);
  pair.of_node = {pair.backward->graph(), request.with_gradients, pair.number};
}

// Counts, with the backward's program, the bytes that it does not share with the ProgramPair for all results.
void count_bytes(const ProgramPair& pair) {
  const capture::Graph &joint = *pair.joint.graph, *traced = pair.traced.graph.get();
  const size_t of_trace = traced == nullptr || traced == &joint ? 0 : traced->footprint(&joint);
  const capture::Graph* const for_derivatives = pair.for_derivatives ? pair.for_derivatives->graph.get() : nullptr;
  const size_t of_derivatives = for_derivatives == nullptr ? 0 : for_derivatives->footprint(pair.whole->second_order.joint.graph.get());
  pair.backward->add_owners_bytes(joint.footprint(pair.whole->joint.graph.get()) + of_trace + of_derivatives);
}

SecondOrder find_second_order(const ProgramPair& pair, const capture::Joint& joint, const PairRequest& request) {
  const capture::Joint& recorded = request.with_graph != nullptr ? *request.with_graph : joint;
  SecondOrder order = second_order_of(recorded, pair.saved_values, pair.saved, request.with_gradients, request.recomputes_results);
  order.has_own_joint = request.has_own_joint;
  order.was_asked_for = request.asks_for_second_order;
  // The other program cannot repeat the kernels' numbers.
  if (request.has_own_joint && pair.draws_in_kernels) order.why_not = "it draws random numbers";
  if (request.why_no_second_order != nullptr) order.why_not = request.why_no_second_order;
  return order;
}

void complete_for_group(ProgramPair& pair, const std::vector<bool>& flows) {
  const SecondOrder& order = pair.whole->second_order;
  if (order.why_not == nullptr) pair.for_derivatives = with_flows(order.joint, flows);
  // Of several results, some may get no gradient: for zeros in its place, a backward may read more.
  if (std::count(flows.begin(), flows.end(), true) != 1) return;
  if (pair.for_derivatives) {
    ReadForDerivatives read = read_for_derivatives(order, *pair.for_derivatives, pair.saved_values);
    pair.needs_saved = std::move(read.saved);
    pair.needs_primals = std::move(read.primals);
  }
  pair.needs_saved.resize(pair.saved.size());
  const std::vector<capture::ValueId>& inputs = pair.backward->graph()->inputs;
  for (size_t i = 0; i < pair.saved.size(); ++i) pair.needs_saved[i] = pair.needs_saved[i] || inputs[i].defined();
}

std::shared_ptr<ProgramPair> beside(const std::shared_ptr<const ProgramPair>& whole, capture::Joint joint) {
  auto pair = std::make_shared<ProgramPair>();
  pair->joint = std::move(joint);
  pair->devices = whole->devices;
  pair->draws_in_kernels = whole->draws_in_kernels;
  pair->saved_values = whole->saved_values;
  pair->saved = whole->saved;
  pair->forward = whole->forward;
  pair->whole = whole;
  return pair;
}

}  // namespace

std::shared_ptr<const ProgramPair> compile_pair(capture::Joint joint, const PairRequest& request) {
  auto pair = std::make_shared<ProgramPair>();
  pair->devices = devices_of(*joint.graph);
  pair->traced = request.traced != nullptr ? *request.traced : joint;
  const bool is_bitwise = joint.graph->bitwise;
  if (may_draw_in_kernels(request.options, joint)) {
    const auto drawing = codegen::draw_in_kernels(joint);
    pair->draws_in_kernels = drawing.graph != joint.graph;
    joint = drawing;
  }
  const capture::Joint with_derivatives = joint;
  joint = codegen::with_known_values(joint);
  capture::Partitioned parts;
  const bool has_backward = !request.tangents.empty();
  if (has_backward) {
    const auto made = request.options.partition(joint, {request.options.memory_budget, request.lasting});
    if (!made || !made->forward || !made->backward) throw std::runtime_error("AotOptions::partition gave no programs");
    parts = *made;
  } else {
    parts = codegen::split(joint, {});
  }
  for (uint32_t i = 0; i < parts.saved.size(); ++i) pair->saved.push_back(find_saved(joint, parts.saved[i], i));
  pair->saved_values = parts.saved;
  const AotOptions& options = request.options;
  pair->joint = std::move(joint);
  if (wants_names(options)) parts.forward = with_names(parts.forward, name_values(pair->joint));
  pair->forward = std::make_shared<Program>(numbered(parts.forward, "forward of a function", is_bitwise), options.fw_compiler,
                                            options.async, request.primals);
  if (has_backward) {
    pair->second_order = find_second_order(*pair, with_derivatives, request);
    if (request.is_for_others) {
      pair->tangents = request.tangents;
    } else {
      add_backward(*pair, parts.backward, request);
    }
  } else if (base::tracing()) {
    record_joint_of(*pair->joint.graph, *pair);
  }
  const capture::Graph &joint_graph = *pair->joint.graph,
                       &traced = *pair->traced.graph, *const derived = pair->second_order.joint.graph.get();
  size_t bytes_of_names = base::footprint(pair->joint.primal_names) + base::footprint(pair->joint.known);
  for (const std::string& name : pair->joint.primal_names) bytes_of_names += base::footprint_beyond<15>(name);
  pair->forward->add_owners_bytes(
      bytes_of_names + joint_graph.footprint(parts.forward.get()) + (&joint_graph == &traced ? 0 : traced.footprint(&joint_graph)) +
      (derived == nullptr || derived == &joint_graph || derived == &traced ? 0 : derived->footprint(&joint_graph)));
  return pair;
}

std::shared_ptr<const ProgramPair> make_backward_beside(const std::shared_ptr<const ProgramPair>& whole, capture::Joint joint,
                                                        const PairRequest& request) {
  if (joint.graph->values.size() != whole->traced.graph->values.size()) {
    // Makes passes that add values number them as in the program for all results, which was traced after this one.
    auto graph = std::make_shared<capture::Graph>(*joint.graph);
    graph->values = whole->traced.graph->values;
    joint.graph = std::move(graph);
  }
  capture::Joint traced = joint;
  if (may_draw_in_kernels(request.options, joint)) joint = codegen::draw_in_kernels(joint);
  const auto backward = codegen::backward_behind(joint, whole->saved_values);
  if (!backward) return nullptr;
  const auto pair = beside(whole, std::move(joint));
  pair->traced = std::move(traced);
  add_backward(*pair, backward, request);
  count_bytes(*pair);
  return pair;
}

std::shared_ptr<const ProgramPair> make_backward_of_some(const std::shared_ptr<const ProgramPair>& whole, const std::vector<bool>& flows,
                                                         const std::vector<bool>& wants, const PairRequest& request) {
  const capture::Joint joint = wants.empty() ? whole->joint : codegen::with_some_gradients(whole->joint, wants);
  auto some = codegen::with_some_tangents(joint, flows);
  auto backward = some ? codegen::backward_behind(*some, whole->saved_values) : nullptr;
  const bool takes_zeros = backward == nullptr;
  if (takes_zeros) {
    some = codegen::with_gradients_of(joint, flows);
    backward = codegen::backward_behind(*some, whole->saved_values);
  }
  if (!backward) throw std::runtime_error("a part of a backward needs more than the whole");
  const auto pair = beside(whole, std::move(*some));
  pair->wants = wants;
  add_backward(*pair, backward, request);
  for (size_t i = 0; takes_zeros && i < flows.size(); ++i) pair->takes_zeros[i] = !flows[i];
  if (request.is_of_group) complete_for_group(*pair, flows);
  count_bytes(*pair);
  return pair;
}

void ensure_backward(std::vector<std::shared_ptr<const ProgramPair>>& made, PairRequest request) {
  const std::shared_ptr<const ProgramPair> whole = made.front();
  if (made.back()->backward || whole->tangents.empty()) return;
  request.tangents = whole->tangents;
  made.push_back(make_backward_of_some(whole, std::vector<bool>(whole->tangents.size(), true), {}, request));
}

}  // namespace hindcast::engine
