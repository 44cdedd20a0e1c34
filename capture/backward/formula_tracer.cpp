#include "capture/backward/formula_tracer.h"

#include "base/check.h"
#include "base/first_line.h"
#include "base/log.h"
#include "capture/backward/check_results.h"
#include "capture/backward/copy_slices.h"
#include "capture/backward/libtorch_access.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/program_node.h"
#include "capture/graph/inline_program.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <bit>
#include <typeinfo>

namespace hindcast::capture {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

// Updates the carrier's graph task, which then knows which results of the write's node are needed.
NodePtr write_of(Node& node) {
  const std::lock_guard lock(node_mutex(node));
  NodePtr write = written_by(node);
  if (!write) HC_UNSUPPORTED("its node was released");
  static_cast<torch::autograd::CopySlices&>(node).update_exec_info();
  return write;
}

std::vector<bool> needed_results(const Node& node) {
  std::vector<bool> needed;
  for (uint32_t i = 0; i < node.num_outputs(); ++i) needed.push_back(node.task_should_compute_output(i));
  return needed;
}

}  // namespace

std::optional<std::vector<Traced>> FormulaTracer::run(Node& node, const NodeCall& call, const std::vector<Traced>& inputs,
                                                      Warnings& warned) {
  for (const Traced& input : inputs) {
    if (input.real.defined() && !is_plain(input.real)) return refuse(node, "a gradient is not a plain strided tensor");
  }
  if (call.kind == NodeKind::Program) return run_program(node, call, inputs);
  Recorder& recorder = writer_.recorder();
  recorder.begin(writer_.call());
  try {
    const auto write = call.writes_to_view() ? write_of(node) : nullptr;
    const PackedNode packed = pack_node(write ? *write : node);
    if (!packed.function) return refuse(node, "its function was bound by somebody else");
    recorder.set_user_formula(packed.function->is_custom);
    const auto arguments = substitute(packed, call, substitution(call));
    const Recorder::Scope scope(recorder);
    const FormulaWarnings warnings(recorder, warned);
    const auto formula = [&](variable_list gradients) { return packed.function->apply(std::move(gradients), arguments); };
    variable_list gradients = stand_ins(recorder, inputs);
    variable_list results = write ? on_piece(piece_of(node), gradients[0], needed_results(node), formula) : formula(std::move(gradients));
    validate(node, call, results);
    std::vector<Traced> outputs = traced(recorder, results);
    if (forget_plain_numbers(call))
      recorder.refuse("reads a number of its saved_data that changes as a plain one; toScalar() keeps it an input");
    if (!recorder.refusal()) return outputs;
  } catch (const std::exception& error) {
    forget_plain_numbers(call);
    recorder.refuse(base::first_line(error));
  }
  recorder.rollback();
  return refuse(node, *recorder.refusal());
}

std::nullopt_t FormulaTracer::refuse(Node& node, const std::string& reason) {
  HC_LOG(Fallbacks, Info, "{} (NodeCall {}) is called as itself: {}", node.name(), writer_.call() + 1, reason);
  refusal_ = reason;
  return std::nullopt;
}

void FormulaTracer::validate(Node& node, const NodeCall& call, variable_list& results) {
  check_results(node, results, [&](uint32_t e, c10::SymDimVector& shape) {
    if (!facts_.dynamic() || e >= call.edge_count) return;
    const auto* facts = facts_.metadata(call, e);
    for (size_t d = 0; facts != nullptr && d < shape.size(); ++d) shape[d] = facts_.symint((*facts)[d]);
  });
}

PieceOfBase FormulaTracer::piece_of(const Node& node) const {
  auto fact = facts_.of(writer_.call()).piece.begin();
  return read_piece(node, [&] { return facts_.symint(*fact++); });
}

// The uses of a plain number cannot be followed: a graph that contains it would be valid for one value only.
bool FormulaTracer::forget_plain_numbers(const NodeCall& call) {
  bool any = false;
  if (call.kind != NodeKind::Visited || !facts_.dynamic()) return any;
  for (const uint32_t fact : facts_.of(writer_.call()).scalars) any |= facts_.forget_pin(fact);
  return any;
}

Substitution FormulaTracer::substitution(const NodeCall& call) {
  Substitution result;
  const NodeFacts& facts = facts_.of(writer_.call());
  result.tensor = [this, &call](uint32_t slot) { return saved_tensor(call, slot); };
  if (!facts_.dynamic()) return result;
  result.scalar = [this, &facts](uint32_t k, double value) {
    if (k >= facts.scalars.size() || facts_.collected(facts.scalars[k]) != std::bit_cast<int64_t>(value))
      HC_UNSUPPORTED("packed scalars differ from those collected");
    return facts_.symfloat(facts.scalars[k]);
  };
  if (call.kind == NodeKind::Visited && facts.sizes.empty()) return result;  // its sizes are exact facts
  result.sizes = static_cast<uint32_t>(facts.sizes.size());
  result.size = [this, &facts](uint32_t k, int64_t value) {
    if (k >= facts.sizes.size() || facts_.collected(facts.sizes[k]) != value) HC_UNSUPPORTED("packed sizes differ from those collected");
    return facts_.symint(facts.sizes[k]);
  };
  return result;
}

at::Tensor FormulaTracer::saved_tensor(const NodeCall& call, uint32_t slot) {
  const at::Tensor& real = collected_.tensors[call.first_tensor + slot];
  if (!real.defined()) return {};
  return writer_.recorder().stand_in(real, saved_value(call, slot));
}

ValueId FormulaTracer::saved_value(const NodeCall& call, uint32_t slot) {
  const at::Tensor& real = collected_.tensors[call.first_tensor + slot];
  if (!real.defined()) return {};
  ValueId& id = writer_.graph().inputs[call.first_tensor + slot];
  if (!id.defined()) {
    id = writer_.recorder().new_value(real, facts_.sizes(facts_.of(writer_.call()).tensors[slot]));
    writer_.keep_input(id, real);
  }
  return id;
}

// Inlines the program's instrs unchanged, and runs it through ATen now.
std::optional<std::vector<Traced>> FormulaTracer::run_program(Node& node, const NodeCall& call, const std::vector<Traced>& inputs) {
  auto& owner = static_cast<ProgramNode&>(node);
  const NodeProgram& program = *owner.program();
  auto gradients = owner.run_as_captured(reals(inputs));
  if (!gradients) return refuse(node, "its program is for gradients of other layouts");
  std::vector<ValueId> given;
  for (uint32_t slot = 0; slot < call.tensor_count; ++slot) given.push_back(saved_value(call, slot));
  for (const Traced& input : inputs) given.push_back(input.value);
  std::vector<ExprId> integers;
  for (const uint32_t fact : facts_.of(writer_.call()).sizes) integers.push_back(facts_.size(fact));
  // Released before the program, not after it: a program may be a whole backward, and each saved tensor is freed after its last use. With
  // post hooks the node may still be needed.
  if (node.post_hooks().empty()) writer_.release_node();
  std::vector<bool> is_kept(program.graph->outputs.size());
  for (size_t e = 0; e < gradients->size(); ++e) {
    const Node* const next = node.next_edge(e).function.get();
    if (next != nullptr && typeid(*next) == typeid(torch::autograd::AccumulateGrad)) is_kept[program.of_edges[e]] = true;
  }
  const std::vector<ValueId> made =
      inline_program(writer_.graph(), {*program.graph, given, integers, writer_.call(), std::move(is_kept), call.tensor_count});
  writer_.graph().programs.push_back(writer_.call());
  std::vector<Traced> outputs;
  for (size_t e = 0; e < gradients->size(); ++e) {
    at::Tensor& gradient = (*gradients)[e];
    const ValueId value = gradient.defined() ? made[program.of_edges[e]] : ValueId();
    outputs.push_back({std::move(gradient), value});
  }
  return outputs;
}

}  // namespace hindcast::capture
