#include "codegen/partition/some_tangents.h"

#include "capture/graph/accumulation.h"
#include "capture/graph/args.h"
#include "capture/graph/copy_graph.h"
#include "capture/graph/known_op.h"
#include "capture/ops/op_facts.h"
#include "codegen/partition/joint_uses.h"

#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::OpFacts;
using capture::ValueId;

namespace {

// Whether the op's results are zero if all its operands that depend on a tangent are. All formulas of LibTorch named *_backward are linear
// in the gradient. Used for formulas with only some of their gradients: LibTorch's formulas skip the terms of undefined gradients.
bool is_linear(const Instr& instr) {
  const c10::OperatorName& name = instr.op->operator_name();
  return name.name.find("_backward") != std::string::npos || capture::facts_of(name).has(OpFacts::Linear);
}

class SomeTangents {
 public:
  SomeTangents(const Joint& joint, const std::vector<bool>& flows) : uses_(joint), joint_(joint), graph_(uses_.graph()), flows_(flows) {
    state_.resize(graph_.values.size());
    for (size_t i = 0; i < flows.size(); ++i) {
      const ValueId tangent = joint.tangent_values()[i];
      if (tangent.defined() && !flows[i]) state_[tangent.index].is_zero = true;
    }
  }

  std::optional<Joint> run() {
    Joint part = joint_;
    made_ = std::make_shared<Graph>(graph_);
    made_->instrs = {};
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      if (i == joint_.forward_end) part.forward_end = static_cast<uint32_t>(made_->instrs.size());
      if (!leave_out(i) && !add(i)) return std::nullopt;
    }
    if (joint_.forward_end == graph_.instrs.size()) part.forward_end = static_cast<uint32_t>(made_->instrs.size());
    for (size_t i = 0; i < flows_.size(); ++i) {
      ValueId& tangent = made_->inputs[joint_.primals + i];
      tangent = flows_[i] ? now(tangent) : ValueId();
    }
    for (size_t i = joint_.results; i < made_->outputs.size(); ++i) {
      ValueId& gradient = made_->outputs[i];
      gradient = is_zero(gradient) ? ValueId() : now(gradient);
    }
    made_->verify();
    part.graph = std::move(made_);
    return part;
  }

 private:
  struct State {
    bool is_zero = false;
    bool is_made = false;  // as zeros, for a reader of other gradients; still zero for all others
    ValueId instead;       // the tensor that replaces it
  };

  ValueId now(ValueId value) const {
    if (!value.defined()) return value;
    const State& state = state_[value.index];
    if (state.is_zero && !state.is_made) return {};
    return state.instead.defined() ? state.instead : value;
  }
  bool is_zero(ValueId value) const { return value.defined() && state_[value.index].is_zero; }
  bool has_another_name(ValueId value) const { return value.defined() && state_[value.index].instead.defined(); }

  bool leave_out(uint32_t i) {
    const Instr& instr = graph_.instrs[i];
    if (gets_no_gradient(i) && (capture::may_be_accumulation(instr) ? reads_only_zeros(instr) : makes_a_gradient(instr)))
      return are_zero(instr);
    if (!uses_.runs_in_backward(i) || uses_.stays(i) || !reads_zero(instr)) return false;
    if (const auto sum = operands_of_sum(instr)) return is_one_operand(instr, (*sum)[0], (*sum)[1]);
    return instr.kind == InstrKind::Op && reads_only_zeros(instr) && is_linear(instr) && are_zero(instr);
  }

  bool are_zero(const Instr& instr) {
    for (const ValueId output : instr.outputs) {
      if (output.defined()) state_[output.index].is_zero = true;
    }
    return true;
  }

  // Whether the node whose formula contains instr i has no incoming gradient: autograd does not run it.
  bool gets_no_gradient(uint32_t i) {
    const uint32_t formula = graph_.instrs[i].formula;
    if (i < joint_.forward_end || formula == 0) return false;
    const auto [known, is_new] = without_gradient_.try_emplace(formula, false);
    if (!is_new) return known->second;
    bool any_is_zero = false, all_are_zero = true;
    const auto look_at = [&](ValueId value) {
      if (!value.defined() || !uses_.is_of_backward(value)) return;
      const uint32_t maker = uses_.maker_of(value);
      if (maker != JointUses::kNone && graph_.instrs[maker].formula == formula) return;
      (is_zero(value) ? any_is_zero : all_are_zero) = is_zero(value);
    };
    for (uint32_t part = i; part < graph_.instrs.size(); ++part) {
      const Instr& instr = graph_.instrs[part];
      if (instr.formula == formula && !capture::may_be_accumulation(instr)) capture::for_each_use(instr, look_at);
    }
    return known->second = any_is_zero && all_are_zero;
  }

  // For an instr of a formula without incoming gradients. Its other instrs compute values that the formula reads, and perhaps others, too:
  // the first formula that asks a checkpoint for a value recomputes all of them.
  bool makes_a_gradient(const Instr& instr) const {
    return reads_zero(instr) || (instr.op && capture::facts_of(instr.op->operator_name()).has(OpFacts::Zeros));
  }

  bool reads_zero(const Instr& instr) const {
    bool any = false;
    capture::for_each_use(instr, [&](ValueId value) { any = any || is_zero(value); });
    return any;
  }
  // Whether all operands that depend on a tangent are zero.
  bool reads_only_zeros(const Instr& instr) const {
    bool all = true;
    capture::for_each_use(instr, [&](ValueId value) { all = all && (!value.defined() || !uses_.is_of_backward(value) || is_zero(value)); });
    return all;
  }

  static std::optional<std::array<ValueId, 2>> operands_of_sum(const Instr& instr) {
    if (instr.kind == InstrKind::AddGrads) return std::array<ValueId, 2>{instr.inputs[0], instr.inputs[1]};
    if (instr.kind != InstrKind::Op || instr.op->operator_name() != c10::OperatorName("aten::add", "Tensor")) return std::nullopt;
    const auto& alpha = instr.args[2];
    if (alpha.kind != capture::Arg::Kind::Constant || !alpha.constant.isScalar() || !alpha.constant.toScalar().equal(1))
      return std::nullopt;
    if (instr.args[0].values.size() != 1 || instr.args[1].values.size() != 1) return std::nullopt;
    return std::array<ValueId, 2>{instr.args[0].values[0], instr.args[1].values[0]};
  }

  bool is_one_operand(const Instr& instr, ValueId a, ValueId b) {
    if (is_zero(a) && is_zero(b)) return are_zero(instr);
    const ValueId other = now(is_zero(a) ? b : a), output = instr.outputs[0];
    const capture::Value &is = graph_.values[other.index], &was = graph_.values[output.index];
    if (is.sizes != was.sizes || is.dtype != was.dtype || is.strides != was.strides) return false;
    state_[output.index].instead = other;
    return true;
  }

  bool add(uint32_t i) {
    const Instr& instr = graph_.instrs[i];
    bool can_be_made = true, reads_another_name = false;
    capture::for_each_use(instr, [&](ValueId value) {
      if (is_zero(value) && !state_[value.index].is_made) can_be_made = can_be_made && make_zeros(value, instr);
      reads_another_name = reads_another_name || has_another_name(value);
    });
    if (!can_be_made) return false;
    if (!reads_another_name) {
      made_->instrs.share(graph_.instrs, i);
      return true;
    }
    Instr copy = instr;
    const auto rename = [&](auto& list) {
      for (ValueId& value : list) value = now(value);
    };
    for (capture::Arg& arg : copy.args) rename(arg.values);
    for (capture::ViewStep& view : copy.views) {
      for (capture::Arg& arg : view.args) rename(arg.values);
    }
    rename(copy.inputs);
    copy.base = now(copy.base);
    made_->instrs.push_back(std::move(copy));
    return true;
  }

  // Makes zeros with the order of dims in memory that the value had, which results of later operators follow, and expanded as it was.
  // Returns false if the memory has gaps or overlaps and the reader has strides among its arguments.
  bool make_zeros(ValueId value, const Instr& reader) {
    const capture::Value zeros = graph_.values[value.index];
    const size_t rank = zeros.sizes.size();
    const auto is_expanded = [&](size_t dim) { return zeros.strides[dim] == 0 && graph_.symbols->hint(zeros.sizes[dim]) != 1; };
    std::vector<size_t> order(rank);  // from the outermost dim to the innermost
    std::iota(order.begin(), order.end(), size_t{0});
    const auto sorted = std::stable_partition(order.begin(), order.end(), is_expanded);
    std::stable_sort(sorted, order.end(), [&](size_t a, size_t b) { return zeros.strides[a] > zeros.strides[b]; });
    capture::Value memory = zeros;
    memory.is_view = false;
    for (size_t i = 0; i < rank; ++i) memory.sizes[i] = is_expanded(order[i]) ? made_->symbols->integer(1) : zeros.sizes[order[i]];
    memory.strides = contiguous(memory.sizes);
    std::vector<int64_t> places(rank);  // by dim of the value
    bool is_dense = true;
    for (size_t i = 0; i < rank; ++i) {
      places[order[i]] = static_cast<int64_t>(i);
      const bool is_one = graph_.symbols->hint(memory.sizes[i]) == 1;
      is_dense = is_dense && (is_one || memory.strides[i] == zeros.strides[order[i]]);
    }
    if (!is_dense && names_strides(reader)) return false;
    const bool is_expanded_anywhere = memory.sizes != in_order(zeros.sizes, order);
    const bool is_permuted = !std::is_sorted(order.begin(), order.end());
    ValueId made = is_permuted || is_expanded_anywhere ? new_value(memory) : value;
    static constinit capture::KnownOp zeros_op("aten::zeros"), permute("aten::permute"), expand("aten::expand");
    Instr& instr = new_instr(reader, zeros_op, made);
    instr.args.push_back(sizes_arg(memory.sizes));
    for (const c10::IValue& option : {c10::IValue(zeros.dtype), c10::IValue(at::kStrided), c10::IValue(zeros.device), c10::IValue()})
      instr.args.push_back(capture::constant(option));
    if (is_permuted) {
      capture::Value permuted = memory;
      permuted.is_view = true;
      for (size_t dim = 0; dim < rank; ++dim) {
        permuted.sizes[dim] = memory.sizes[static_cast<size_t>(places[dim])];
        permuted.strides[dim] = memory.strides[static_cast<size_t>(places[dim])];
      }
      const ValueId from = std::exchange(made, is_expanded_anywhere ? new_value(permuted) : value);
      new_instr(reader, permute, made).args = {capture::tensor(from), capture::constant(places)};
    }
    if (is_expanded_anywhere) {
      new_instr(reader, expand, value).args = {capture::tensor(made), sizes_arg(zeros.sizes), capture::constant(/*implicit=*/false)};
    }
    state_[value.index].is_made = true;
    return true;
  }

  Instr& new_instr(const Instr& reader, capture::KnownOp& op, ValueId result) {
    Instr& made = made_->instrs.emplace_back();
    made.op = op.get();
    made.origin = reader.origin;
    made.formula = reader.formula;
    made.outputs = {result};
    return made;
  }
  ValueId new_value(const capture::Value& value) {
    made_->values.push_back(capture::Value(value));
    return {static_cast<uint32_t>(made_->values.size() - 1)};
  }
  static capture::Arg sizes_arg(const std::vector<capture::ExprId>& sizes) {
    capture::Arg arg{capture::Arg::Kind::IntList, {}, {}, {}};
    arg.exprs.append(sizes.begin(), sizes.end());
    return arg;
  }
  static std::vector<capture::ExprId> in_order(const std::vector<capture::ExprId>& sizes, const std::vector<size_t>& order) {
    std::vector<capture::ExprId> result;
    for (const size_t dim : order) result.push_back(sizes[dim]);
    return result;
  }
  std::vector<int64_t> contiguous(const std::vector<capture::ExprId>& sizes) const {
    std::vector<int64_t> hints;
    for (const capture::ExprId size : sizes) hints.push_back(graph_.symbols->hint(size));
    const auto strides = c10::contiguous_strides(hints);
    return {strides.begin(), strides.end()};
  }

  static bool names_strides(const Instr& instr) {
    const auto names = [](const c10::OperatorHandle& op) { return capture::facts_of(op.operator_name()).has(OpFacts::Strides); };
    return (instr.op && names(*instr.op)) ||
           std::any_of(instr.views.begin(), instr.views.end(), [&](const capture::ViewStep& view) { return names(view.op); });
  }

  const JointUses uses_;
  const Joint& joint_;
  const Graph& graph_;
  const std::vector<bool>& flows_;
  std::vector<State> state_;                             // by value
  std::unordered_map<uint32_t, bool> without_gradient_;  // by formula
  std::shared_ptr<Graph> made_;
};

}  // namespace

std::optional<Joint> with_some_tangents(const Joint& joint, const std::vector<bool>& flows) { return SomeTangents(joint, flows).run(); }

Joint with_gradients_of(const Joint& joint, const std::vector<bool>& flows) {
  auto graph = std::make_shared<Graph>(*joint.graph);
  std::vector<bool> is_reached(graph->values.size());
  for (size_t i = 0; i < flows.size(); ++i) {
    if (flows[i] && joint.tangent_values()[i].defined()) is_reached[joint.tangent_values()[i].index] = true;
  }
  for (const Instr& instr : graph->instrs) {
    bool any = false;
    capture::for_each_use(instr, [&](ValueId value) { any = any || (value.defined() && is_reached[value.index]); });
    if (!any) continue;
    for (const ValueId output : instr.outputs) {
      if (output.defined()) is_reached[output.index] = true;
    }
  }
  for (size_t i = joint.results; i < graph->outputs.size(); ++i) {
    if (graph->outputs[i].defined() && !is_reached[graph->outputs[i].index]) graph->outputs[i] = {};
  }
  Joint part = joint;
  part.graph = std::move(graph);
  return part;
}

}  // namespace hindcast::codegen
