#include "capture/backward/formulas.h"

#include "base/check.h"
#include "capture/backward/copy_slices.h"
#include "capture/backward/libtorch_access.h"
#include "capture/backward/packed_args.h"
#include "capture/backward/check_results.h"

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace hindcast::capture {

using torch::autograd::Node;
using torch::autograd::variable_list;

Formulas::Formulas(const Collected& collected) : collected_(collected) {
  for (const NodeCall& call : collected.calls) {
    const bool is_called = call.needed && call.kind != NodeKind::Accumulate;
    formulas_.push_back(is_called ? formula_of(call) : Formula());
  }
}

Formulas::Formula Formulas::formula_of(const NodeCall& call) {
  Formula formula;
  if (call.kind == NodeKind::Program) {
    const std::lock_guard lock(node_mutex(*call.node));
    formula.program = static_cast<ProgramNode&>(*call.node).recomputed_backward();
    if (!formula.program) HC_UNSUPPORTED("{}: its program is gone", call.node->name());
    return formula;
  }
  if (call.writes_to_view()) static_cast<torch::autograd::CopySlices&>(*call.node).update_exec_info();
  formula.packed = pack_node(*call.formula);
  if (!formula.packed.function) HC_UNSUPPORTED("{}: its function was bound by somebody else", call.formula->name());
  if (call.writes_to_view()) {
    for (uint32_t i = 0; i < call.node->num_outputs(); ++i) formula.needed.push_back(call.node->task_should_compute_output(i));
  }
  return formula;
}

class Formulas::Run {
 public:
  Run(const Formulas& of, const Inputs& inputs)
      : of_(of), collected_(of.collected_), inputs_(inputs), waiting_(collected_.input_total), is_symbolic_(has_symbols(inputs)) {}

  Gradients run() {
    for (size_t i = 0; i < collected_.roots.size(); ++i) flow(collected_.roots[i], inputs_.root_gradients[i]);
    gradients_.captured.resize(collected_.captures.size());
    for (uint32_t i = 0; i < collected_.calls.size(); ++i) {
      const NodeCall& call = collected_.calls[i];
      variable_list arrived = take(call);
      if (call.has_captures) capture(i, arrived);
      if (!call.needed) continue;
      if (call.kind == NodeKind::Accumulate) {
        gradients_.of_leaves.push_back(std::move(arrived[0]));
        continue;
      }
      variable_list results = apply(i, std::move(arrived));
      check(call, results);
      for (uint32_t e = 0; e < call.edge_count && e < results.size(); ++e) flow(collected_.edges[call.first_edge + e], results[e]);
    }
    return std::move(gradients_);
  }

 private:
  static bool has_symbols(const Inputs& inputs) {
    return std::any_of(inputs.integers.begin(), inputs.integers.end(), [](const c10::SymInt& each) { return each.is_symbolic(); });
  }

  // Same as the engine's InputBuffer in grad mode.
  void flow(const EdgeTarget& edge, const at::Tensor& gradient) {
    if (edge.call == kNoCall || !gradient.defined()) return;
    at::Tensor& waiting = waiting_[collected_.calls[edge.call].first_input + edge.input_nr];
    waiting = waiting.defined() ? waiting + gradient : gradient;
  }

  variable_list take(const NodeCall& call) {
    const auto first = waiting_.begin() + call.first_input;
    return {std::make_move_iterator(first), std::make_move_iterator(first + call.input_count)};
  }

  void capture(uint32_t index, const variable_list& arrived) {
    for (size_t i = 0; i < collected_.captures.size(); ++i) {
      const GradCapture& capture = collected_.captures[i];
      if (capture.call == index) gradients_.captured[i] = arrived[capture.input_nr];
    }
  }

  variable_list apply(uint32_t index, variable_list arrived) {
    const NodeCall& call = collected_.calls[index];
    const c10::SymInt* integers = inputs_.integers.data() + call.first_integer + (call.first_field_fact - call.first_fact);
    if (call.kind == NodeKind::Program) return compute(index, integers, std::move(arrived));
    const PackedNode& packed = of_.formulas_[index].packed;
    PieceOfBase piece;
    if (call.writes_to_view()) piece = read_piece(*call.node, [&] { return *integers++; });
    Substitution substitution;
    substitution.tensor = [&](uint32_t slot) { return inputs_.tensors[call.first_tensor + slot]; };
    if (is_symbolic_) substitution.size = [&](uint32_t k, int64_t) { return integers[k]; };
    const auto arguments = substitute(packed, call, substitution);
    const auto formula = [&](variable_list gradients) { return packed.function->apply(std::move(gradients), arguments); };
    return call.writes_to_view() ? on_piece(piece, arrived[0], of_.formulas_[index].needed, formula) : formula(std::move(arrived));
  }

  variable_list compute(uint32_t index, const c10::SymInt* integers, variable_list arrived) const {
    const NodeCall& call = collected_.calls[index];
    const RecomputedBackward& formula = *of_.formulas_[index].program;
    // Zeros instead would give gradients to inputs that have none in the stock engine.
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!arrived[i].defined() && formula.tangents[i].defined())
        HC_UNSUPPORTED("{}: no gradient arrives at one of its results", call.node->name());
    }
    return formula.run(inputs_.tensors.subspan(call.first_tensor), arrived, std::span(integers, formula.bindings.ints.size()));
  }

  void check(const NodeCall& call, variable_list& results) const {
    check_results(*call.node, results, [&](uint32_t e, c10::SymDimVector& shape) {
      if (!is_symbolic_ || e >= call.edge_count) return;
      const EdgeTarget& edge = collected_.edges[call.first_edge + e];
      if (edge.call != kNoCall) std::copy_n(sizes_of_input(edge), shape.size(), shape.begin());
    });
  }

  const c10::SymInt* sizes_of_input(const EdgeTarget& edge) const {
    const NodeCall& call = collected_.calls[edge.call];
    const c10::SymInt* sizes = inputs_.integers.data() + call.first_integer;
    for (uint32_t i = 0; i < edge.input_nr; ++i) {
      const auto& metadata = call.node->input_metadata(i);
      if (!metadata.was_default_constructed()) sizes += metadata.shape_as_dim_vector().size();
    }
    return sizes;
  }

  const Formulas& of_;
  const Collected& collected_;
  const Inputs& inputs_;
  variable_list waiting_;  // by flat input
  Gradients gradients_;
  const bool is_symbolic_;
};

Formulas::Gradients Formulas::run(const Inputs& inputs) const { return Run(*this, inputs).run(); }

}  // namespace hindcast::capture
