// The backward of a compiled function when its gradients are to be differentiated. It runs as a compiled function itself: its inputs are
// the arguments with their autograd history, what the forward saved, and the incoming gradients. Its results have an AotNode, so
// derivatives of any order are programs.

#include "base/check.h"
#include "base/format.h"
#include "cache/key.h"
#include "codegen/partition/some_gradients.h"
#include "engine/aot/aot_node.h"
#include "engine/aot/carried_integers.h"
#include "engine/aot/family.h"
#include "engine/aot/gradient_nodes.h"
#include "engine/aot/warn_once.h"
#include "engine/takeover.h"
#include "hindcast/detail/aot_core.h"

#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <span>

namespace hindcast::engine {

using torch::autograd::variable_list;

namespace {

AotOptions options_of_backward(AotOptions options) {
  options.fw_compiler = options.bw_compiler;
  options.static_argnums.clear();
  options.tensor_names = nullptr;
  options.check_every = 0;
  return options;
}

// From gradients by edge to gradients by primal: undefined for primals that need none.
variable_list by_primal(const std::vector<uint32_t>& with_gradients, variable_list of_edges, size_t primals) {
  variable_list gradients(primals);
  for (size_t i = 0; i < with_gradients.size(); ++i) gradients[with_gradients[i]] = std::move(of_edges[i]);
  return gradients;
}

// `wants`: ProgramPair::wants.
void set_joint(capture::RecomputedBackward& backward, const capture::Joint& joint, const std::vector<uint32_t>& with_gradients,
               const std::vector<bool>& wants = {}) {
  const auto tangents = joint.tangent_values(), gradients = joint.gradient_values();
  backward.graph = joint.graph;
  backward.tangents.assign(tangents.begin(), tangents.end());
  backward.gradients.clear();
  for (const uint32_t primal : with_gradients) {
    const bool is_wanted = primal < gradients.size() && (wants.empty() || wants[primal]);
    backward.gradients.push_back(is_wanted ? gradients[primal] : capture::ValueId());
  }
}

}  // namespace

const char* AotNode::why_not_differentiated(const ProgramPair& whole) const {
  const SecondOrder& order = whole.second_order;
  if (order.why_not != nullptr) return order.why_not;
  const auto is_lost = [&](const SecondOrder::Primal& primal) { return !primal.saved && specialisation_->is_written(primal.number); };
  // The backward would take the written values as constants, though they depend on the arguments.
  const auto is_constant = [&](const SecondOrder::Given& given) {
    const Saved& saved = whole.saved[given.saved];
    return given.has_history && saved.from == Saved::From::Result && specialisation_->is_written_without_history(saved.index);
  };
  const bool writes =
      std::any_of(order.primals.begin(), order.primals.end(), is_lost) || std::any_of(order.given.begin(), order.given.end(), is_constant);
  return writes ? "it writes to its arguments" : nullptr;
}

void AotNode::leave_to_the_function(const std::string& why_not) const {
  specialisation_->give_up_at_all_sizes();  // else each new size would raise the error of a first call
  note_eager("its gradients are differentiated, and " + why_not);
}

std::optional<std::string> AotNode::find_changed_argument() const {
  for (const KeptPrimal& kept : for_second_order_) {
    if (kept.tensor.is_inference() || kept.tensor._version() == kept.version) continue;
    return base::format(
        "one of the variables needed for gradient computation has been modified by an inplace operation: an argument of a compiled "
        "function, of size {}, is at version {}; expected version {}",
        kept.tensor.sizes(), kept.tensor._version(), kept.version);
  }
  return std::nullopt;
}

capture::RecomputedBackward AotNode::backward_of_arguments() {
  if (const auto changed = find_changed_argument()) throw std::runtime_error(*changed);
  const auto& whole = whole_of(pair_);
  const SecondOrder& order = whole->second_order;
  const bool has_own_joint = is_for_group_ && pair_->for_derivatives;
  capture::RecomputedBackward backward{has_own_joint ? pair_->number : whole->number, {}, bindings_, {}, {}, {}, {}};
  for (const auto& given : order.given) backward.given.emplace_back(pair_->saved_values[given.saved], saved_[given.saved].unpack(getptr()));
  const auto values = order.joint.primal_values();
  for (const auto& [number, saved] : order.primals) {
    if (saved) backward.given.emplace_back(values[number], saved_[*saved].unpack(getptr()));
  }
  for (const KeptPrimal& kept : for_second_order_) backward.given.emplace_back(values[kept.number], kept.tensor);
  for (const auto& [saved, was_contiguous] : order.recomputed) {
    backward.saved.push_back({pair_->saved_values[saved], saved_[saved].unpack(getptr()), was_contiguous});
  }
  set_joint(backward, has_own_joint ? *pair_->for_derivatives : order.joint, specialisation_->with_gradients());
  return backward;
}

// Returns the gradients by primal.
variable_list AotNode::differentiable_backward(const variable_list& tangents) {
  const auto& whole = whole_of(pair_);
  if (const char* const why_not = why_not_differentiated(*whole)) return without_derivatives(tangents, why_not);
  if (const auto changed = find_changed_argument()) return without_derivatives(tangents, *changed);
  capture::RecomputedBackward backward = backward_of_arguments();

  std::vector<at::Tensor> inputs;
  std::vector<bool> flows;
  cache::KeyBytes facts;
  for (const auto& [value, tensor] : backward.given) inputs.push_back(tensor);
  for (const auto& saved : backward.saved) inputs.push_back(saved.tensor);
  const size_t tensors_of_call = inputs.size();
  for (size_t i = 0; i < tangents.size(); ++i) {
    flows.push_back(tangents[i].defined());
    inputs.push_back(tangents[i]);
    if (flows.back()) continue;
    // The function may create zeros of this size instead.
    for (const c10::SymInt& size : input_metadata(i).shape_as_dim_vector()) cache::append(facts, size.expect_int());
  }
  const size_t carriers = inputs.size();
  const CarriedIntegers integers(backward.bindings.ints);
  integers.append_carriers(inputs);
  integers.append_facts(facts);
  for (const double number : backward.bindings.floats) cache::append(facts, number);
  const std::vector<bool> wants = wanted(whole_of(pair_)->joint.primals);
  for (const bool is_wanted : wants) cache::append(facts, is_wanted);

  const auto function = [&](const std::vector<at::Tensor>& given) -> detail::FunctionOutput {
    const capture::Joint& joint = whole->second_order.joint;
    const capture::Joint some = wants.empty() ? joint : codegen::with_some_gradients(joint, wants);
    set_joint(backward, with_flows(some, flows), specialisation_->with_gradients(), wants);
    const auto tensors = std::span(given).first(tensors_of_call);
    std::vector<at::Tensor> arrived(given.begin() + static_cast<ptrdiff_t>(tensors.size()),
                                    given.begin() + static_cast<ptrdiff_t>(carriers));
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!flows[i] && backward.tangents[i].defined()) arrived[i] = input_metadata(i).zeros_like();
    }
    const OnStockEngine stock;
    try {
      return {.tensors = backward.run(tensors, arrived, integers.read(std::span(given).subspan(carriers)))};
    } catch (const Unsupported& why) {  // because a size is a symbol; in an eager run, sizes are numbers
      throw capture::NotTraced(why.what());
    }
  };
  const auto& core = whole->with_graph.get([&] { return std::make_shared<detail::AotCore>(options_of_backward(context_->options)); });
  context_->counts.backwards.fetch_add(1, std::memory_order_relaxed);
  variable_list found = core->call({.inputs = inputs,
                                    .facts = std::string(reinterpret_cast<const char*>(facts.data()), facts.size()),
                                    .is_static = {},
                                    .function = function,
                                    .only_reads = true})
                            .tensors;
  give_each_its_own_node(found, inputs);
  return by_primal(specialisation_->with_gradients(), std::move(found), whole->joint.primals);
}

variable_list AotNode::without_derivatives(const variable_list& tangents, const std::string& why_not) {
  leave_to_the_function(why_not);
  const at::AutoGradMode no_grad(false);
  return with_error(backward_by_ops(tangents), why_not);
}

// The gradients with a node that throws when they are differentiated.
variable_list AotNode::with_error(variable_list gradients, const std::string& why_not) const {
  const auto error = capture::own_node(new torch::autograd::Error(
      base::format("hindcast::aot_function: this call has no second derivatives: {}. Later calls run the function eagerly, and have them",
                   why_not),
      torch::autograd::edge_list(next_edges())));
  for (at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    gradient = gradient.detach();
    error->add_input_metadata(gradient);
    torch::autograd::impl::set_gradient_edge(gradient, {error, static_cast<uint32_t>(error->num_inputs() - 1)});
  }
  return gradients;
}

}  // namespace hindcast::engine
