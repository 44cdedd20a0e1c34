#include "codegen/cpu/check_kernel.h"

#include "engine/base/check.h"
#include "engine/base/format.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace hindcast::codegen {
namespace {

using Values = std::unordered_map<uint32_t, at::Tensor>;

// What the group makes when its loads are float64.
Values in_double(const capture::Graph& graph, const Group& group, const Values& values, const capture::Env& env) {
  Values exact;
  for (const auto load : inputs_of(group)) {
    const at::Tensor& tensor = values.at(load.index);
    exact[load.index] = tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
  }
  // softmax' gradient is told its input's type, and refuses another.
  capture::Graph in_double = graph;
  for (const uint32_t member : group.members) {
    capture::Instr& instr = in_double.instrs[member];
    if (!instr.op) continue;
    for (size_t i = 0; i < instr.args.size(); ++i) {
      if (instr.op->schema().arguments()[i].name() == "input_dtype") instr.args[i].constant = static_cast<int64_t>(at::kDouble);
    }
  }
  in_double.replay(exact, instrs_of(group), env);
  return exact;
}

Slots run_kernel(const Group& group, std::shared_ptr<const CpuKernel> kernel, const Values& values, const capture::Env& env) {
  Step step;
  Slots slots;
  for (const auto load : inputs_of(group)) {
    step.inputs.push_back({static_cast<uint32_t>(slots.size()), false});
    slots.push_back(values.at(load.index));
  }
  for (size_t i = 0; i < group.stores.size(); ++i) {
    step.outputs.push_back(static_cast<uint32_t>(slots.size()));
    slots.emplace_back();
  }
  make_kernel_call(group, std::move(kernel))->run(step, slots, env);
  slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(step.inputs.size()));
  return slots;
}

double unit_of(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Double:
      return std::numeric_limits<double>::epsilon();
    case at::ScalarType::BFloat16:
      return std::numeric_limits<c10::BFloat16>::epsilon();
    case at::ScalarType::Half:
      return std::numeric_limits<c10::Half>::epsilon();
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

std::optional<std::string> compare(const at::Tensor& ours, const at::Tensor& by_aten, const at::Tensor& exact) {
  if (ours.scalar_type() != by_aten.scalar_type() || ours.sizes() != by_aten.sizes() || ours.strides() != by_aten.strides())
    return "has another layout than ATen's";
  if (ours.numel() == 0) return std::nullopt;
  const at::Tensor finite = at::logical_and(by_aten.isfinite(), exact.isfinite());
  const auto odd = [&](const at::Tensor& tensor) { return tensor.to(at::kDouble).masked_fill(finite, 0).nan_to_num(1, 2, 3); };
  if (!at::equal(ours.isfinite(), by_aten.isfinite()) || !at::equal(odd(ours), odd(by_aten)))
    return "has other infinities or NaN than ATen's";
  const auto largest = [&](const at::Tensor& tensor) { return tensor.masked_fill(finite.logical_not(), 0).abs().max().item<double>(); };
  const double error = largest(ours.to(at::kDouble) - exact), of_aten = largest(by_aten.to(at::kDouble) - exact);
  const double unit = unit_of(ours.scalar_type());
  const double allowed = 4 * of_aten + 64 * unit * largest(exact);
  if (error <= allowed) return std::nullopt;
  return base::format("is off by {}, ATen by {}, allowed are {}", error, of_aten, allowed);
}

}  // namespace

std::optional<std::string> find_difference(const capture::Graph& graph, const Group& group, std::shared_ptr<const CpuKernel> kernel,
                                           const Values& values) {
  for (const auto load : inputs_of(group)) {
    if (!values.contains(load.index)) return std::nullopt;  // made behind an opaque node, which a replay does not call
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  capture::Env env;
  HC_CHECK(capture::Evaluator(*graph.symbols).evaluate(capture::bindings_at_capture(*graph.symbols), env));
  const Values exact = in_double(graph, group, values, env);
  const Slots stored = run_kernel(group, std::move(kernel), values, env);
  for (size_t i = 0; i < group.stores.size(); ++i) {
    const uint32_t value = group.stores[i].index;
    if (const auto wrong = compare(stored[i], values.at(value), exact.at(value)))
      return base::format("a kernel of {} ops is wrong: its result {} {}", group.members.size(), i, *wrong);
  }
  return std::nullopt;
}

}  // namespace hindcast::codegen
