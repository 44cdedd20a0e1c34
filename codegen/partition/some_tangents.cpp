#include "codegen/partition/some_tangents.h"

#include "capture/graph/copy_graph.h"
#include "codegen/partition/joint_uses.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace hindcast::codegen {

using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Joint;
using capture::ValueId;

namespace {

// Ops whose results are zero where all that depends on a tangent is. All formulas of LibTorch named *_backward are linear in the gradient.
bool is_linear(const Instr& instr) {
  static constexpr std::array kNames = {"aten::neg",
                                        "aten::sum",
                                        "aten::mean",
                                        "aten::expand",
                                        "aten::view",
                                        "aten::_unsafe_view",
                                        "aten::reshape",
                                        "aten::t",
                                        "aten::transpose",
                                        "aten::permute",
                                        "aten::squeeze",
                                        "aten::unsqueeze",
                                        "aten::slice",
                                        "aten::select",
                                        "aten::narrow",
                                        "aten::alias",
                                        "aten::detach",
                                        "aten::clone",
                                        "aten::_to_copy",
                                        "aten::mm",
                                        "aten::bmm",
                                        "aten::mul",
                                        "aten::split",
                                        "aten::split_with_sizes",
                                        "aten::unbind",
                                        "aten::flip",
                                        "aten::roll",
                                        "aten::as_strided",
                                        "aten::diagonal",
                                        "aten::cumsum",
                                        "aten::real",
                                        "aten::imag",
                                        "aten::_conj",
                                        "aten::view_as_real",
                                        "aten::view_as_complex",
                                        "aten::zeros_like",
                                        "aten::new_zeros",
                                        "aten::index_select",
                                        "aten::gather",
                                        "aten::constant_pad_nd",
                                        "aten::sub",
                                        "aten::unfold",
                                        "aten::tril",
                                        "aten::triu",
                                        "aten::dot",
                                        "aten::mv",
                                        "aten::_reshape_alias",
                                        "aten::resolve_conj",
                                        "aten::_neg_view",
                                        "aten::lift_fresh",
                                        "aten::contiguous"};
  const std::string& name = instr.op->operator_name().name;
  return name.find("_backward") != std::string::npos || std::find(kNames.begin(), kNames.end(), std::string_view(name)) != kNames.end();
}

class SomeTangents {
 public:
  SomeTangents(const Joint& joint, const std::vector<bool>& flows) : uses_(joint), joint_(joint), graph_(uses_.graph()) {
    state_.resize(graph_.values.size());
    for (size_t i = 0; i < flows.size(); ++i) {
      const ValueId tangent = joint.tangent_values()[i];
      if (tangent.defined() && !flows[i]) state_[tangent.index].is_zero = true;
    }
  }

  std::optional<Joint> run() {
    Joint part = joint_;
    auto graph = std::make_shared<Graph>(graph_);
    graph->instrs = {};
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      if (i == joint_.forward_end) part.forward_end = static_cast<uint32_t>(graph->instrs.size());
      switch (what_becomes_of(i)) {
        case Outcome::Kept:
          add(*graph, i);
          break;
        case Outcome::Gone:
          break;
        case Outcome::Unknown:
          return std::nullopt;
      }
    }
    if (joint_.forward_end == graph_.instrs.size()) part.forward_end = static_cast<uint32_t>(graph->instrs.size());
    for (size_t i = joint_.primals; i < graph->inputs.size(); ++i) graph->inputs[i] = now(graph->inputs[i]);
    for (size_t i = joint_.results; i < graph->outputs.size(); ++i) graph->outputs[i] = now(graph->outputs[i]);
    graph->verify();
    part.graph = std::move(graph);
    return part;
  }

 private:
  enum class Outcome : uint8_t { Kept, Gone, Unknown };
  struct State {
    bool is_zero = false;
    ValueId instead;  // the same
  };

  ValueId now(ValueId value) const {
    if (!value.defined()) return value;
    const State& state = state_[value.index];
    if (state.is_zero) return {};
    return state.instead.defined() ? state.instead : value;
  }
  bool is_zero(ValueId value) const { return value.defined() && state_[value.index].is_zero; }
  bool has_another_name(ValueId value) const { return value.defined() && state_[value.index].instead.defined(); }

  Outcome what_becomes_of(uint32_t i) {
    const Instr& instr = graph_.instrs[i];
    if (!uses_.runs_in_backward(i) || uses_.stays(i)) return reads_zero(instr) ? Outcome::Unknown : Outcome::Kept;
    if (!reads_zero(instr)) return Outcome::Kept;
    if (const auto sum = operands_of_sum(instr)) return sum_of(instr, (*sum)[0], (*sum)[1]);
    const bool all_are_zero = reads_only_zeros(instr);
    if (!all_are_zero || instr.kind != InstrKind::Op || !is_linear(instr)) return Outcome::Unknown;
    for (const ValueId output : instr.outputs) {
      if (output.defined()) state_[output.index].is_zero = true;
    }
    return Outcome::Gone;
  }

  bool reads_zero(const Instr& instr) const {
    bool any = false;
    capture::for_each_use(instr, [&](ValueId value) { any = any || is_zero(value); });
    return any;
  }
  // Of what depends on a tangent.
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

  Outcome sum_of(const Instr& instr, ValueId a, ValueId b) {
    const ValueId output = instr.outputs[0];
    if (is_zero(a) && is_zero(b)) {
      state_[output.index].is_zero = true;
      return Outcome::Gone;
    }
    const ValueId other = now(is_zero(a) ? b : a);
    const capture::Value &is = graph_.values[other.index], &was = graph_.values[output.index];
    if (is.sizes != was.sizes || is.dtype != was.dtype || is.strides != was.strides) return Outcome::Unknown;
    state_[output.index].instead = other;
    return Outcome::Gone;
  }

  void add(Graph& graph, uint32_t i) const {
    bool reads_another_name = false;
    capture::for_each_use(graph_.instrs[i], [&](ValueId value) { reads_another_name = reads_another_name || has_another_name(value); });
    if (!reads_another_name) return graph.instrs.share(graph_.instrs, i);
    Instr copy = graph_.instrs[i];
    const auto rename = [&](auto& list) {
      for (ValueId& value : list) value = now(value);
    };
    for (capture::Arg& arg : copy.args) rename(arg.values);
    for (capture::ViewStep& view : copy.views) {
      for (capture::Arg& arg : view.args) rename(arg.values);
    }
    rename(copy.inputs);
    copy.base = now(copy.base);
    graph.instrs.push_back(std::move(copy));
  }

  const JointUses uses_;
  const Joint& joint_;
  const Graph& graph_;
  std::vector<State> state_;  // by value
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
