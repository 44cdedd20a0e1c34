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
  for (const auto load : group.loads) {
    const at::Tensor& tensor = values.at(load.index);
    exact[load.index] = tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
  }
  graph.replay(exact, instrs_of(group), env);
  return exact;
}

Slots run_kernel(const Group& group, std::shared_ptr<const CpuKernel> kernel, const Values& values, const capture::Env& env) {
  Step step;
  Slots slots;
  for (const auto load : group.loads) {
    step.inputs.push_back({static_cast<uint32_t>(slots.size()), false});
    slots.push_back(values.at(load.index));
  }
  for (size_t i = 0; i < group.stores.size(); ++i) {
    step.outputs.push_back(static_cast<uint32_t>(slots.size()));
    slots.emplace_back();
  }
  make_kernel_call(group, std::move(kernel))->run(step, slots, env);
  slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(group.loads.size()));
  return slots;
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
  const double unit = ours.scalar_type() == at::kFloat ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const double allowed = 4 * of_aten + 64 * unit * largest(exact);
  if (error <= allowed) return std::nullopt;
  return base::format("is off by {}, ATen by {}, allowed are {}", error, of_aten, allowed);
}

}  // namespace

std::optional<std::string> find_difference(const capture::Graph& graph, const Group& group, std::shared_ptr<const CpuKernel> kernel,
                                           const Values& values) {
  for (const auto load : group.loads) {
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
