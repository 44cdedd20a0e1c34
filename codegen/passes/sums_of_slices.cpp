#include "codegen/passes/sums_of_slices.h"

#include "capture/graph/value_uses.h"
#include "codegen/passes/uses.h"
#include "codegen/fuse/padding.h"
#include "base/index.h"

#include <algorithm>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::InstrKind;
using capture::Value;
using capture::ValueId;
using capture::ViewStep;

class SumsOfSlices {
 public:
  SumsOfSlices(const Graph& graph, const CostModel& costs) : graph_(graph), costs_(costs), uses_(graph) {}

  Rewrite run() {
    const capture::ValueUses makers(graph_);
    for (uint32_t i = 0; i < graph_.instrs.size(); ++i) {
      const Instr& instr = graph_.instrs[i];
      if (instr.kind != InstrKind::AddGrads) continue;
      for (const size_t part : {size_t(1), size_t(0)}) {
        const ValueId value = instr.inputs[part], whole = instr.inputs[1 - part];
        if (!value.defined() || !whole.defined() || makers.maker_of(value) == base::kNoIndex) continue;
        const Instr& slice = graph_.instrs[makers.maker_of(value)];
        if (slice.kind != InstrKind::Op || !slice_of(slice) || is_read_by_kernels(slice)) continue;
        if (!is_only_for(value, makers.maker_of(value), i) || !can_be_added(slice, whole, instr.outputs[0])) continue;
        rewrite_.rebuilt[i] = added_to_slice(instr, slice, whole);
        ++rewrite_.reasons["added to a slice"];
        break;
      }
    }
    return std::move(rewrite_);
  }

 private:
  const Value& value(ValueId id) const { return graph_.values[id.index]; }

  // The view op whose gradient the instr computes, without its base.
  static std::optional<ViewStep> slice_of(const Instr& instr) {
    const std::string& name = instr.op->operator_name().name;
    const char* view = name == "aten::slice_backward" ? "aten::slice" : name == "aten::select_backward" ? "aten::select" : nullptr;
    if (view == nullptr || instr.outputs.size() != 1 || !instr.args[0].values[0].defined()) return std::nullopt;
    const char* overload = name == "aten::slice_backward" ? "Tensor" : "int";
    ViewStep step{c10::Dispatcher::singleton().findSchemaOrThrow(view, overload), {Arg{}}, 0, 0};
    step.args.insert(step.args.end(), instr.args.begin() + 2, instr.args.end());  // after the gradient and the sizes of the base
    return step;
  }

  // Whether the kernel that adds it reads the unpadded gradient in place, so that the rewrite gains nothing.
  bool is_read_by_kernels(const Instr& slice) const { return padding_of(graph_, slice) && is_worth_reading_through(graph_, slice, costs_); }

  // Whether the sum is its only reader, and its operand is unchanged when the sum is computed.
  bool is_only_for(ValueId part, uint32_t maker, uint32_t sum) const {
    const auto uses = uses_.of_memory(part);
    return uses.size() == 1 && uses[0].instr == sum && uses_.segment_of(maker) == uses_.segment_of(sum) &&
           !uses_.accumulates_between(maker, sum);
  }

  // Whether the slice can be added in place: `whole` has the layout of the sum.
  bool can_be_added(const Instr& slice, ValueId whole, ValueId sum) const {
    const Value &to = value(whole), &made = value(sum);
    return uses_.is_computed(whole) && !uses_.may_be_zero_tensor(whole) && !to.is_view && to.dtype == made.dtype &&
           to.device == made.device && to.sizes == made.sizes && to.strides == made.strides &&
           value(slice.args[0].values[0]).dtype == made.dtype && std::find(to.strides.begin(), to.strides.end(), 0) == to.strides.end();
  }

  static Instr added_to_slice(const Instr& sum, const Instr& slice, ValueId whole) {
    Instr instr = sum;
    instr.kind = InstrKind::Mutate;
    instr.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::add_", "Tensor");
    Arg one;
    one.constant = int64_t(1);
    instr.args = {Arg{}, slice.args[0], one};
    instr.inputs.clear();
    instr.base = whole;
    instr.views = {*slice_of(slice)};
    return instr;
  }

  const Graph& graph_;
  const CostModel& costs_;
  const Uses uses_;
  Rewrite rewrite_;
};

}  // namespace

Rewrite sums_of_slices(const Graph& graph, const CostModel& costs) { return SumsOfSlices(graph, costs).run(); }

}  // namespace hindcast::codegen
