#include "capture/recorder/symbolic_strides.h"

#include "capture/recorder/recorder.h"

#include <ATen/TensorGeometry.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace hindcast::capture {

namespace {

// Whether each dimension of the view has a stride of the viewed tensor, or 0.
bool preserves_strides(const c10::OperatorHandle& op, const std::vector<Arg>& args) {
  static constexpr std::array<std::string_view, 14> kNames = {"select",           "transpose", "permute", "t",      "unsqueeze",
                                                              "squeeze",          "expand",    "alias",   "detach", "split",
                                                              "split_with_sizes", "unbind",    "numpy_T", "adjoint"};
  std::string_view name = op.operator_name().name;
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  if (name == "slice") return args[4].kind == Arg::Kind::Constant && args[4].constant.isInt() && args[4].constant.toInt() == 1;
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (size_t d = sizes.size(); d-- > 0; next *= std::max<int64_t>(sizes[d], 1)) strides[d] = next;
  return strides;
}

}  // namespace

std::vector<c10::SymInt> symbolic_strides(c10::IntArrayRef sizes_now, c10::IntArrayRef strides, const std::vector<c10::SymInt>& sizes) {
  std::vector<size_t> order;
  for (size_t d = 0; d < sizes.size(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  if (at::geometry_is_contiguous(sizes_now, strides)) {
    for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  }
  std::vector<c10::SymInt> result(sizes.size(), c10::SymInt(0));
  c10::SymInt next = 1;
  int64_t next_now = 1;
  for (const size_t d : order) {
    const int64_t size_now = sizes_now[d];
    if (strides[d] == 0 && size_now != 1) continue;
    if (next_now != strides[d] && size_now != 1) return {};
    const bool one = sizes[d] == 1;  // a relation if the size is symbolic
    result[d] = one ? c10::SymInt(strides[d]) : next;
    if (one) continue;
    next = next * sizes[d];
    next_now *= size_now;
  }
  return result;
}

static const c10::OperatorName kSlice("aten::slice", "Tensor"), kSplit("aten::split", "Tensor"),
    kSplitWithSizes("aten::split_with_sizes", ""), kView("aten::view", ""), kUnsafeView("aten::_unsafe_view", "");

void note_whether_whole(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const TracingTensor& whole,
                        const TracingTensor& part) {
  const c10::OperatorName& name = op.operator_name();
  if (name != kSlice && name != kSplit && name != kSplitWithSizes) return;
  const int64_t dim = inputs[name == kSlice ? 1 : 2].toInt(), dims = static_cast<int64_t>(whole.sizes.size());
  const auto place = static_cast<size_t>(c10::maybe_wrap_dim(dim, dims));
  (void)(part.sizes[place] == whole.sizes[place]);  // a relation if one of them is symbolic
}

// A node's result that is a view is an input without views of the next node: its own views are among the instrs.
template <class Visit>
ValueId Recorder::walk_views(const TracingTensor& tensor, Visit visit) const {
  for (const ViewStep& step : tensor.views) visit(step.op, step.args);
  ValueId value = tensor.base->value;
  for (size_t i = graph_.instrs.size(); i-- > 0;) {
    const Instr& instr = graph_.instrs[i];
    if (std::find(instr.outputs.begin(), instr.outputs.end(), value) == instr.outputs.end()) continue;
    if (instr.kind == InstrKind::Mutate) {
      value = instr.base;
      continue;
    }
    if (instr.kind != InstrKind::Op || !graph_.values[value.index].is_view) break;
    const auto viewed = std::find_if(instr.args.begin(), instr.args.end(), [](const Arg& arg) { return arg.kind == Arg::Kind::Value; });
    if (viewed == instr.args.end()) break;
    visit(*instr.op, instr.args);
    value = viewed->values[0];
  }
  return value;
}

std::vector<int64_t> Recorder::hints_of(c10::ArrayRef<ExprId> sizes) const {
  std::vector<int64_t> hints;
  for (const ExprId size : sizes) hints.push_back(graph_.symbols->hint(size));
  return hints;
}

// How many of the views come first that are view() of a contiguous value, and so contiguous themselves: as in
// linear(x).unflatten(-1, {3, 8}).unbind(2).
size_t Recorder::count_contiguous_views(const TracingTensor& tensor) const {
  const Value& root = graph_.values[tensor.base->value.index];
  if (root.is_view || root.strides.size() != root.sizes.size()) return 0;
  const std::vector<int64_t> contiguous = contiguous_strides(hints_of(root.sizes));
  if (!std::equal(contiguous.begin(), contiguous.end(), root.strides.begin())) return 0;
  const auto is_contiguous = [&](const ViewStep& step) {
    const c10::OperatorName& name = step.op.operator_name();
    return (name == kView || name == kUnsafeView) && step.args[1].kind == Arg::Kind::IntList &&
           std::none_of(step.args[1].exprs.begin(), step.args[1].exprs.end(), [&](ExprId size) { return graph_.symbols->hint(size) < 0; });
  };
  return static_cast<size_t>(std::find_if_not(tensor.views.begin(), tensor.views.end(), is_contiguous) - tensor.views.begin());
}

std::vector<c10::SymInt> Recorder::strides_by_base(const TracingTensor& tensor) {
  if (tensor.base->recorder != number_) return {};
  const size_t contiguous = count_contiguous_views(tensor);
  size_t visited = 0;
  bool all_preserve = true;
  const ValueId root = walk_views(tensor, [&](const c10::OperatorHandle& op, const std::vector<Arg>& args) {
    all_preserve = all_preserve && (visited++ < contiguous || preserves_strides(op, args));
  });
  const Value& root_value = graph_.values[root.index];
  const c10::ArrayRef<ExprId> exprs = contiguous != 0 ? tensor.views[contiguous - 1].args[1].exprs : c10::ArrayRef(root_value.sizes);
  const std::vector<int64_t> strides =
      contiguous != 0 ? contiguous_strides(hints_of(exprs)) : std::vector<int64_t>(root_value.strides.begin(), root_value.strides.end());
  if (!all_preserve || strides.size() != exprs.size()) return {};
  std::vector<c10::SymInt> sizes;
  std::vector<int64_t> sizes_now;
  for (const ExprId size : exprs) {
    sizes.push_back(graph_.symbols->make_symint(size));
    sizes_now.push_back(graph_.symbols->hint(size));
  }
  const std::vector<c10::SymInt> of_root = symbolic_strides(sizes_now, strides, sizes);
  if (of_root.empty()) return {};
  std::vector<c10::SymInt> result;
  for (int64_t d = 0; d < tensor.real.dim(); ++d) {
    const int64_t stride = tensor.real.stride(d);
    std::optional<c10::SymInt> found;
    if (stride == 0 || tensor.real.size(d) == 1) found = stride;
    for (size_t i = 0; !found && i < strides.size(); ++i) {
      if (strides[i] == stride && sizes_now[i] > 1) found = of_root[i];
    }
    if (!found) return {};
    result.push_back(*found);
  }
  return result;
}

void Recorder::pin_strides_of(const TracingTensor& tensor) {
  if (tensor.base->recorder != number_) return;
  const auto pin = [&](ExprId size) {
    if (!graph_.symbols->is_constant(size)) graph_.symbols->pin(size);
  };
  const ValueId root = walk_views(tensor, [&](const c10::OperatorHandle&, const std::vector<Arg>& args) {
    for (const Arg& arg : args) {
      if (arg.kind == Arg::Kind::Int || arg.kind == Arg::Kind::IntList) std::for_each(arg.exprs.begin(), arg.exprs.end(), pin);
    }
  });
  for (const ValueId value : {tensor.base->value, root}) {
    for (const ExprId size : graph_.values[value.index].sizes) pin(size);
  }
}

}  // namespace hindcast::capture
