#include "engine/aot/halves.h"

#include "base/footprint.h"
#include "base/log.h"
#include "base/trace.h"
#include "codegen/partition/random_numbers.h"
#include "codegen/partition/some_tangents.h"
#include "codegen/partition/split.h"
#include "engine/aot/names.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/trace/graph_records.h"
#include "engine/use_options.h"

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

// Where nobody compares the programs with the function.
bool may_draw_in_kernels(const AotOptions& options, const capture::Joint& joint) {
  if (!joint.graph->unbacked.empty()) return false;  // all numbers are counted before the first step, by their sizes
  return !joint.draws_atens && !options.fallback_random && options.check_every == 0 && both_have_kernels(options, *joint.graph);
}

std::shared_ptr<const capture::Graph> numbered(const std::shared_ptr<const capture::Graph>& graph, std::string_view role, bool is_strict) {
  auto copy = std::make_shared<capture::Graph>(*graph);
  copy->id = static_cast<uint32_t>(stats_recorder().add_graph());
  copy->strict = is_strict;
  HC_LOG(AotGraphs, Info, "{}", copy->print());
  if (base::tracing()) record_graph(*copy, role);
  return copy;
}

void record_joint_of(const capture::Graph& joint, const Halves& halves) {
  const uint32_t forward = halves.forward->graph()->id;
  record_joint(joint, forward, halves.backward ? halves.backward->graph()->id : forward);
}

}  // namespace

bool both_have_kernels(const AotOptions& options, const capture::Graph& joint) {
  const auto has_kernels = [](const ProgramCompiler& compiler) {
    return !compiler.function() && replay_of(compiler.compiler() ? compiler.compiler() : default_compiler()) == Replay::Kernels;
  };
  return !joint.strict && has_kernels(options.fw_compiler) && has_kernels(options.bw_compiler);
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

std::vector<at::Tensor> example_inputs(const Halves& halves, const HalvesRequest& request) {
  if (request.backward_inputs) return request.backward_inputs();
  const auto primals = request.primals();
  const Program by_ops(halves.forward->graph(), compilers::eager(), false, {});
  const auto outputs = by_ops.run(primals, capture::bindings_at_capture(*halves.joint.graph->symbols));
  std::vector<at::Tensor> inputs;
  for (const Saved& saved : halves.saved) {
    inputs.push_back(saved.from == Saved::From::Primal ? primals[saved.index] : outputs[saved.index]);
  }
  inputs.insert(inputs.end(), request.example_tangents.begin(), request.example_tangents.end());
  return inputs;
}

void add_backward(Halves& halves, std::shared_ptr<const capture::Graph> backward, const HalvesRequest& request) {
  const AotOptions& options = request.options;
  if (wants_names(options)) backward = with_names(backward, name_values(halves.joint));
  halves.tangents = request.tangents;
  halves.takes_zeros.resize(request.tangents.size());
  const auto examples = [&] { return example_inputs(halves, request); };
  halves.backward = std::make_shared<Program>(numbered(backward, "backward of a function", halves.joint.graph->strict), options.bw_compiler,
                                              options.async, examples, request.leaves);
  if (base::tracing()) record_joint_of(*halves.joint.graph, halves);
  halves.of_node = {halves.backward->graph(), request.with_gradients, halves.number};
}

// What a backward keeps that the whole one has not: counted with its program.
void count_bytes(const Halves& halves) {
  const capture::Graph &joint = *halves.joint.graph, *traced = halves.traced.graph.get();
  const size_t of_trace = traced == nullptr || traced == &joint ? 0 : traced->footprint(&joint);
  halves.backward->add_owners_bytes(joint.footprint(halves.whole->joint.graph.get()) + of_trace);
}

SecondOrder find_second_order(const Halves& halves, const HalvesRequest& request) {
  const bool has_own = request.with_graph != nullptr;
  SecondOrder order =
      second_order_of(has_own ? *request.with_graph : halves.joint, halves.saved_values, halves.saved, request.with_gradients);
  order.has_own_joint = has_own;
  if (has_own && halves.draws_in_kernels)
    order.why_not = "it draws random numbers";  // the other program does not know the kernels' numbers
  if (request.why_no_second_order != nullptr) order.why_not = request.why_no_second_order;
  return order;
}

std::shared_ptr<Halves> beside(const std::shared_ptr<const Halves>& whole, capture::Joint joint) {
  auto halves = std::make_shared<Halves>();
  halves->joint = std::move(joint);
  halves->devices = whole->devices;
  halves->draws_in_kernels = whole->draws_in_kernels;
  halves->saved_values = whole->saved_values;
  halves->saved = whole->saved;
  halves->forward = whole->forward;
  halves->whole = whole;
  return halves;
}

}  // namespace

std::shared_ptr<const Halves> make_halves(capture::Joint joint, const HalvesRequest& request) {
  auto halves = std::make_shared<Halves>();
  halves->devices = devices_of(*joint.graph);
  halves->traced = request.traced != nullptr ? *request.traced : joint;
  const bool is_strict = joint.graph->strict;
  if (may_draw_in_kernels(request.options, joint)) {
    const auto drawing = codegen::draw_in_kernels(joint);
    halves->draws_in_kernels = drawing.graph != joint.graph;
    joint = drawing;
  }
  capture::Partitioned parts;
  const bool has_backward = !request.tangents.empty();
  if (has_backward) {
    const auto made = request.options.partition(joint, {request.options.memory_budget, request.lasting});
    if (!made || !made->forward || !made->backward) throw std::runtime_error("AotOptions::partition gave no programs");
    parts = *made;
  } else {
    parts = codegen::split(joint, {});
  }
  for (uint32_t i = 0; i < parts.saved.size(); ++i) halves->saved.push_back(find_saved(joint, parts.saved[i], i));
  halves->saved_values = parts.saved;
  const AotOptions& options = request.options;
  halves->joint = std::move(joint);
  if (wants_names(options)) parts.forward = with_names(parts.forward, name_values(halves->joint));
  halves->forward = std::make_shared<Program>(numbered(parts.forward, "forward of a function", is_strict), options.fw_compiler,
                                              options.async, request.primals);
  if (has_backward) {
    halves->second_order = find_second_order(*halves, request);
    if (request.is_for_others) {
      halves->tangents = request.tangents;
    } else {
      add_backward(*halves, parts.backward, request);
    }
  } else if (base::tracing()) {
    record_joint_of(*halves->joint.graph, *halves);
  }
  const capture::Graph &joint_graph = *halves->joint.graph, &traced = *halves->traced.graph;
  size_t bytes_of_names = base::footprint(halves->joint.primal_names);
  for (const std::string& name : halves->joint.primal_names) bytes_of_names += base::footprint_beyond<15>(name);
  halves->forward->add_owners_bytes(bytes_of_names + joint_graph.footprint(parts.forward.get()) +
                                    (&joint_graph == &traced ? 0 : traced.footprint(&joint_graph)) +
                                    (halves->second_order.has_own_joint ? halves->second_order.joint.graph->footprint(&joint_graph) : 0));
  return halves;
}

std::shared_ptr<const Halves> make_backward_beside(const std::shared_ptr<const Halves>& whole, capture::Joint joint,
                                                   const HalvesRequest& request) {
  if (joint.graph->values.size() != whole->traced.graph->values.size()) {
    // So that a pass that adds values gives them the numbers that they have in the whole program, which was recorded behind this one.
    auto graph = std::make_shared<capture::Graph>(*joint.graph);
    graph->values = whole->traced.graph->values;
    joint.graph = std::move(graph);
  }
  capture::Joint traced = joint;
  if (may_draw_in_kernels(request.options, joint)) joint = codegen::draw_in_kernels(joint);
  const auto backward = codegen::backward_behind(joint, whole->saved_values);
  if (!backward) return nullptr;
  const auto halves = beside(whole, std::move(joint));
  halves->traced = std::move(traced);
  add_backward(*halves, backward, request);
  count_bytes(*halves);
  return halves;
}

std::shared_ptr<const Halves> make_backward_of_some(const std::shared_ptr<const Halves>& whole, const std::vector<bool>& flows,
                                                    const HalvesRequest& request) {
  auto some = codegen::with_some_tangents(whole->joint, flows);
  auto backward = some ? codegen::backward_behind(*some, whole->saved_values) : nullptr;
  const bool takes_zeros = backward == nullptr;
  if (takes_zeros) {
    some = codegen::with_gradients_of(whole->joint, flows);
    backward = codegen::backward_behind(*some, whole->saved_values);
  }
  if (!backward) throw std::runtime_error("a part of a backward needs more than the whole");
  const auto halves = beside(whole, std::move(*some));
  add_backward(*halves, backward, request);
  for (size_t i = 0; takes_zeros && i < flows.size(); ++i) halves->takes_zeros[i] = !flows[i];
  count_bytes(*halves);
  return halves;
}

void ensure_backward(std::vector<std::shared_ptr<const Halves>>& made, HalvesRequest request) {
  const std::shared_ptr<const Halves> whole = made.front();
  if (made.back()->backward || whole->tangents.empty()) return;
  request.tangents = whole->tangents;
  made.push_back(make_backward_of_some(whole, std::vector<bool>(whole->tangents.size(), true), request));
}

}  // namespace hindcast::engine
