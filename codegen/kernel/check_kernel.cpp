#include "codegen/kernel/check_kernel.h"

#include "codegen/kernel/leaf_requests.h"
#include "base/check.h"
#include "base/format.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace hindcast::codegen {
namespace {

using Values = std::unordered_map<uint32_t, at::Tensor>;

double unit_of(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Double:
    case at::ScalarType::ComplexDouble:
      return std::numeric_limits<double>::epsilon();
    case at::ScalarType::BFloat16:
      return std::numeric_limits<c10::BFloat16>::epsilon();
    case at::ScalarType::Half:
      return std::numeric_limits<c10::Half>::epsilon();
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

// A complex tensor as real numbers, with its parts in a new last dim; a real tensor unchanged.
at::Tensor parts_of(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor; }

at::Tensor in_double(const at::Tensor& tensor) {
  if (tensor.is_complex()) return tensor.to(at::kComplexDouble);
  return tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
}

// Runs the group op by op in float64 or complex128.
class InDouble {
 public:
  InDouble(const capture::Graph& graph, const Group& group) : loads_(inputs_of(group)) {
    for (const uint32_t i : instrs_of(group)) instrs_.push_back(graph.instrs[i]);
    // softmax' backward takes its input's type as an argument, and rejects another.
    for (capture::Instr& instr : instrs_) {
      if (!instr.op) continue;
      for (size_t i = 0; i < instr.args.size(); ++i) {
        if (instr.op->schema().arguments()[i].name() == "input_dtype") instr.args[i].constant = static_cast<int64_t>(at::kDouble);
      }
    }
  }

  /// `noise`: a relative error added to each value, to simulate rounding.
  Values run(const Values& values, const capture::Env& env, double noise) const {
    Values exact;
    for (const auto load : loads_) {
      exact[load.index] = disturbed(in_double(values.at(load.index)), noise, load);
    }
    for (const capture::Instr& instr : instrs_) {
      capture::Graph::replay(exact, instr, env);
      if (noise == 0) continue;
      for (const auto output : instr.outputs) {
        const auto made = exact.find(output.index);
        if (made != exact.end() && made->second.defined()) made->second = disturbed(made->second, noise, output);
      }
    }
    return exact;
  }

 private:
  // Each value gets another error, since equal errors of factors and terms could cancel. Does not use a random generator, so that the state
  // of the user's does not change.
  static at::Tensor disturbed(const at::Tensor& tensor, double noise, capture::ValueId value) {
    if (noise == 0 || !(tensor.is_floating_point() || tensor.is_complex())) return tensor;
    const at::Tensor places =
        at::arange(tensor.numel(), tensor.options().dtype(at::kDouble)).mul(12.9898).add(78.233 * (value.index + 1)).sin();
    return tensor * (places.reshape(tensor.sizes()) * noise + 1);
  }

  const std::vector<capture::ValueId> loads_;
  std::vector<capture::Instr> instrs_;
};

/// The leaves' gradients before the kernel runs.
enum class Before : uint8_t {
  Buffers,  // the first leaf of each result requests a buffer, others have a gradient of zeros
  Ones,     // all have a gradient of ones
};

/// Runs the kernel; returns its results, then the gradients of `leaves`.
Slots run_kernel(const OpCall& call, const Group& group, const Values& values, const capture::Env& env,
                 const std::vector<Group::Leaf>& leaves, Before before = Before::Buffers) {
  Step step;
  Slots slots;
  for (const auto load : inputs_of(group)) {
    step.inputs.push_back({static_cast<uint32_t>(slots.size()), false});
    slots.push_back(values.at(load.index));
  }
  for (size_t i = 0; i < results_of(group).size(); ++i) {
    step.outputs.push_back(static_cast<uint32_t>(slots.size()));
    slots.emplace_back();
  }
  using State = LeafRequest::State;
  std::vector<at::Tensor> added(leaves.size());
  std::vector<LeafRequest> requests(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    step.leaves.push_back({.takes_result = leaves[i].takes_result});
    const bool wants_buffer = before == Before::Buffers && (i == 0 || leaves[i - 1].store != leaves[i].store);
    if (!wants_buffer) added[i] = at::full_like(values.at(group.stores[leaves[i].store].index), before == Before::Ones ? 1 : 0);
    requests[i] = {wants_buffer ? State::BufferWanted : State::AddWanted, added[i]};
  }
  call.run_to_leaves(step, slots, env, requests);
  for (size_t i = 0; i < leaves.size(); ++i) slots.push_back(requests[i].state == State::Added ? added[i] : requests[i].gradient);
  slots.erase(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(step.inputs.size()));
  return slots;
}

// Bitwise equal, except that the sign of zeros may differ.
bool is_same(const at::Tensor& a, const at::Tensor& b) { return at::equal(a.nan_to_num(1, 2, 3), b.nan_to_num(1, 2, 3)); }

// The sum may be rounded once or twice. Near the largest float16, one of the two may overflow to infinity and the other not.
bool is_sum_of_ones_and(const at::Tensor& sum, const at::Tensor& result) {
  constexpr double kLarge = 6e4;
  const double units = 2 * unit_of(sum.scalar_type());
  const at::Tensor wide = result.to(at::kDouble), left_out = wide.abs() > kLarge;
  return at::allclose(sum.to(at::kDouble).masked_fill(left_out, 0), (wide + 1).masked_fill(left_out, 0), units, units, /*equal_nan=*/true);
}

bool is_of_leaves(const Group& group, size_t store) {
  return std::any_of(group.leaves.begin(), group.leaves.end(),
                     [&](const Group::Leaf& leaf) { return leaf.store == store && leaf.is_of_leaves; });
}

// Compares type, sizes and strides. The stride of a dim of size 1 does not matter.
bool lies_alike(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

std::optional<std::string> compare(const at::Tensor& ours, const at::Tensor& by_aten, const at::Tensor& exact, const at::Tensor& rounded) {
  if (ours.numel() == 0) return std::nullopt;
  const at::Tensor finite = at::logical_and(by_aten.isfinite(), exact.isfinite());
  const auto odd = [&](const at::Tensor& tensor) { return tensor.to(at::kDouble).masked_fill(finite, 0).nan_to_num(1, 2, 3); };
  if (!at::equal(ours.isfinite(), by_aten.isfinite()) || !at::equal(odd(ours), odd(by_aten)))
    return "has other infinities or NaN than ATen's";
  const auto largest = [&](const at::Tensor& tensor) { return tensor.masked_fill(finite.logical_not(), 0).abs().max().item<double>(); };
  const double error = largest(ours.to(at::kDouble) - exact), of_aten = largest(by_aten.to(at::kDouble) - exact);
  const double unit = unit_of(ours.scalar_type());
  // If terms cancel, the rounding errors of the terms can exceed any fraction of the result.
  const double by_rounding = largest((rounded - exact).nan_to_num(0, 0, 0));
  const double allowed = 4 * of_aten + 64 * unit * largest(exact) + 8 * by_rounding;
  if (error <= allowed) return std::nullopt;
  return base::format("is off by {}, ATen by {}, allowed are {}", error, of_aten, allowed);
}

}  // namespace

std::optional<std::string> find_difference(const Backend& backend, const capture::Graph& graph, const Group& group,
                                           std::shared_ptr<const Kernel> kernel, const Values& values, const capture::Env& env) {
  for (const auto load : inputs_of(group)) {
    if (!values.contains(load.index)) return std::nullopt;  // depends on an opaque node, which a replay does not call
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const InDouble group_in_double(graph, group);
  const Values exact = group_in_double.run(values, env, 0), rounded = group_in_double.run(values, env, unit_of(group.body.compute));
  const auto call = backend.call(group, std::move(kernel));
  const Slots stored = run_kernel(*call, group, values, env, {});
  const std::vector<capture::ValueId> results = results_of(group);
  for (size_t i = 0; i < results.size(); ++i) {
    const uint32_t value = results[i].index;
    const auto parts_in_double = [&](const Values& of) { return parts_of(of.at(value)).to(at::kDouble); };
    const auto wrong = lies_alike(stored[i], values.at(value))
                           ? compare(parts_of(stored[i]), parts_of(values.at(value)), parts_in_double(exact), parts_in_double(rounded))
                           : std::optional<std::string>("has another layout than ATen's");
    if (wrong) return base::format("a kernel of {} ops is wrong: its result {} {}", group.members.size(), i, *wrong);
  }
  if (group.leaves.empty()) return std::nullopt;
  for (const Before before : {Before::Buffers, Before::Ones}) {
    const Slots written = run_kernel(*call, group, values, env, group.leaves, before);
    for (size_t i = 0; i < written.size(); ++i) {
      const size_t leaf = i - stored.size(), store = i < stored.size() ? i : group.leaves[leaf].store;
      const bool adds = before == Before::Ones && i >= stored.size();
      if (before == Before::Ones && i < stored.size() && is_of_leaves(group, i)) continue;
      // A leaf may have another shape than its sum.
      if (!written[i].defined() || !(adds ? is_sum_of_ones_and : is_same)(written[i].flatten(), stored[store].flatten()))
        return base::format("a kernel of {} ops is wrong: to leaves it {} another result {}", group.members.size(),
                            adds ? "adds" : "writes", store);
    }
  }
  return std::nullopt;
}

}  // namespace hindcast::codegen
