#include "codegen/fuse/views.h"

#include "capture/ops/op_facts.h"
#include "codegen/fuse/pointwise_ops.h"
#include "base/index.h"

#include <algorithm>
#include <numeric>

namespace hindcast::codegen {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::Value;
using capture::ValueId;
using capture::ViewKind;

// The strides of dims of size 1 have no meaning, and ATen chooses them by several rules: they are known only for contiguous
// tensors.
std::optional<std::vector<uint8_t>> dense_order(const Graph& graph, const Value& value) {
  const size_t rank = value.sizes.size();
  if (value.strides.size() != rank) return std::nullopt;  // sparse, mkldnn
  std::vector<int64_t> hints(rank);
  for (size_t i = 0; i < rank; ++i) hints[i] = graph.symbols->hint(value.sizes[i]);
  std::vector<uint8_t> order(rank);
  std::iota(order.begin(), order.end(), uint8_t(0));
  const auto is_dense = [&] {
    int64_t expected = 1;
    for (size_t i = rank; i-- > 0; expected *= std::max<int64_t>(hints[order[i]], 1)) {
      if (value.strides[order[i]] != expected) return false;
    }
    return true;
  };
  if (is_dense()) return order;
  if (std::find(hints.begin(), hints.end(), 1) != hints.end()) return std::nullopt;
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return value.strides[a] > value.strides[b]; });
  if (is_dense()) return order;
  return std::nullopt;
}

bool is_contiguous(const Graph& graph, const Value& value) {
  const auto order = dense_order(graph, value);
  return order && std::is_sorted(order->begin(), order->end());
}

Views::Views(const Graph& graph, const CostModel& costs)
    : graph_(graph),
      costs_(costs),
      leaves_its_segment_(values_that_leave_their_segment()),
      is_wanted_as_tensor_(values_wanted_as_tensors()),
      maker_(graph.values.size(), base::kNoIndex),
      are_counters_(graph.values.size()) {
  for (uint32_t i = 0; i < graph.instrs.size(); ++i) {
    kinds_.push_back(kind_of(graph.instrs[i]));
    if (kinds_.back() != Kind::None) maker_[graph.instrs[i].outputs[0].index] = i;
    if (kinds_.back() == Kind::Padding) paddings_.emplace(i, *padding_of(graph, graph.instrs[i]));
    const auto& op = graph.instrs[i].op;
    if (op && op->operator_name().name == "hindcast::counters") are_counters_[graph.instrs[i].outputs[0].index] = true;
  }
}

// By value: whether it, or a view of it, is read by user code or after user code. A hook or an opaque node may write to it in between, and
// reading through a view would then read the changed values.
std::vector<bool> Views::values_that_leave_their_segment() const {
  std::vector<uint32_t> made_in(graph_.values.size(), base::kNoIndex), segment_of;
  for (const Instr& instr : graph_.instrs) {
    const uint32_t segment = segment_of.empty() ? 0 : segment_of.back() + (capture::is_barrier(instr) ? 1 : 0);
    segment_of.push_back(segment);
    for (const ValueId output : instr.outputs) {
      if (output.defined()) made_in[output.index] = segment;
    }
  }
  std::vector<bool> leaves(graph_.values.size());
  for (const ValueId output : graph_.outputs) {
    if (output.defined()) leaves[output.index] = true;
  }
  for (size_t i = graph_.instrs.size(); i-- > 0;) {
    const Instr& instr = graph_.instrs[i];
    const bool view_leaves = std::any_of(instr.outputs.begin(), instr.outputs.end(), [&](ValueId output) {
      return output.defined() && graph_.values[output.index].is_view && leaves[output.index];
    });
    capture::for_each_use(instr, [&](ValueId value) {
      if (value.defined() && (view_leaves || capture::is_barrier(instr) || segment_of[i] != made_in[value.index]))
        leaves[value.index] = true;
    });
  }
  return leaves;
}

// By value: whether it, or a view of it, has readers that are not pointwise ops.
std::vector<bool> Views::values_wanted_as_tensors() const {
  std::vector<bool> wanted(graph_.values.size());
  for (const ValueId output : graph_.outputs) {
    if (output.defined()) wanted[output.index] = true;
  }
  for (const Instr& instr : graph_.instrs) {
    if (capture::waits(instr) || instr.kind == capture::InstrKind::AddGrads) continue;
    if (instr.kind == capture::InstrKind::Op) {
      const auto& name = instr.op->operator_name();
      const bool is_view = instr.outputs.size() == 1 && instr.outputs[0].defined() && graph_.values[instr.outputs[0].index].is_view;
      if (is_view || find_pointwise_op(name) || find_complex_op(name) || padding_of(graph_, instr)) continue;
    }
    capture::for_each_use(instr, [&](ValueId value) {
      if (value.defined()) wanted[value.index] = true;
    });
  }
  return wanted;
}

Views::Kind Views::kind_of(const Instr& instr) const {
  if (instr.kind != capture::InstrKind::Op || instr.outputs.size() != 1 || !instr.outputs[0].defined()) return Kind::None;
  if (instr.args.empty() || instr.args[0].kind != Arg::Kind::Value || !instr.args[0].values[0].defined()) return Kind::None;
  const auto& name = instr.op->operator_name();
  const Value &from = graph_.values[instr.args[0].values[0].index], &to = graph_.values[instr.outputs[0].index];
  const ViewKind view = capture::facts_of(name).view;
  if (view == ViewKind::Conjugate) return Kind::Conjugate;
  if (is_padding(instr)) return Kind::Padding;
  if (name.name == "aten::clone" && c10::isComplexType(to.dtype))
    return leaves_its_segment_[instr.outputs[0].index] ? Kind::None : Kind::Copy;
  if (view == ViewKind::Broadcast && !(from.sizes == to.sizes && is_contiguous(graph_, from))) return Kind::Broadcast;
  if (view != ViewKind::Broadcast && view != ViewKind::Reshape) return Kind::None;
  // A result that is not contiguous is a view of a non-contiguous tensor.
  return from.dtype == to.dtype && is_contiguous(graph_, from) && is_contiguous(graph_, to) ? Kind::Reshape : Kind::None;
}

bool Views::is_padding(const Instr& instr) const {
  if (!padding_of(graph_, instr) || !is_worth_reading_through(graph_, instr, costs_)) return false;
  const ValueId from = instr.args[0].values[0], to = instr.outputs[0];
  return graph_.values[from.index].strides.size() == graph_.values[to.index].sizes.size() && !leaves_its_segment_[to.index] &&
         !is_wanted_as_tensor_[to.index];
}

// Walks from a value to its base. The order of views must be broadcasts, then reshapes: strides cannot express a reshaped broadcast.
// Paddings come last. Below a padding that adds zeros, no other may cut off a part of the tensor: the offsets alone would not say where
// those zeros begin.
template <class Visit>
void Views::walk(ValueId value, Visit visit) const {
  bool is_reshaped = false, is_padded = false, is_part = true;
  for (uint32_t maker = maker_[value.index]; maker != base::kNoIndex; maker = maker_[value.index]) {
    const Kind kind = kinds_[maker];
    if (is_reshaped && (kind == Kind::Broadcast || kind == Kind::Padding)) return;
    if (is_padded && kind != Kind::Padding) return;
    if (kind == Kind::Padding) {
      const Padding& padding = paddings_.at(maker);
      if (is_padded && !is_part && !padding.is_whole) return;
      is_part = is_part && padding.is_part;
      is_padded = true;
    }
    is_reshaped = is_reshaped || kind == Kind::Reshape;
    value = graph_.instrs[maker].args[0].values[0];
    visit(maker, value, kind);
  }
}

Views::Source Views::source_of(ValueId value) const {
  Source source{value, graph_.values[value.index].sizes};
  walk(value, [&](uint32_t maker, ValueId base, Kind kind) {
    source.value = base;
    if (kind == Kind::Broadcast) source.sizes = graph_.values[base.index].sizes;
    if (kind == Kind::Padding) {
      const std::vector<Offset>& offsets = paddings_.at(maker).offsets;
      source.offsets.resize(offsets.size());
      for (size_t dim = 0; dim < offsets.size(); ++dim) {
        if (offsets[dim] != Offset{}) source.offsets[dim].push_back(offsets[dim]);
      }
    }
    source.is_reshaped = source.is_reshaped || kind == Kind::Reshape;
    source.is_conjugated = source.is_conjugated != (kind == Kind::Conjugate);
  });
  return source;
}

void Views::append_views(ValueId value, std::vector<uint32_t>& views) const {
  walk(value, [&](uint32_t view, ValueId, Kind) { views.push_back(view); });
}

}  // namespace hindcast::codegen
