#include "capture/graph/replay_check.h"

#include "base/format.h"
#include "hooks/node_streams.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

using Values = std::unordered_map<uint32_t, at::Tensor>;
using Results = std::vector<std::pair<ValueId, at::Tensor>>;

/// `near`: values that need only be close.
std::optional<std::string> first_that_differs(const Values& values, const Results& results, Zeros zeros,
                                              const std::unordered_set<uint32_t>& near = {}) {
  for (const auto& [value, tensor] : results) {
    if (!value.defined()) continue;
    const auto found = values.find(value.index);
    if (found == values.end()) return base::format("value {} is not made by the replay", value.index);
    const bool is_same = near.count(value.index) != 0 ? nearly_same(found->second, tensor) : same_bits(found->second, tensor, zeros);
    if (!is_same) return base::format("value {} is not what the capture computed", value.index);
  }
  return std::nullopt;
}

}  // namespace

std::unordered_map<uint32_t, at::Tensor> ReplayCheck::replay(const Graph& graph) const {
  std::unordered_map<uint32_t, at::Tensor> values;
  for (const auto& [value, tensor] : inputs) {
    if (value.defined()) values[value.index] = tensor;
  }
  graph.replay(values);
  return values;
}

void Versions::add(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
  if (version.enabled()) then_.emplace_back(version, version.current_version());  // an inference tensor has none
}

bool Versions::have_moved() const {
  return std::any_of(then_.begin(), then_.end(), [](const auto& then) { return then.first.current_version() != then.second; });
}

std::optional<c10::DeviceType> ReplayCheck::accelerator() const {
  for (const auto* list : {&inputs, &results}) {
    for (const auto& [value, tensor] : *list) {
      if (tensor.defined() && !tensor.device().is_cpu()) return tensor.device().type();
    }
  }
  return std::nullopt;
}

ReplayOnAccelerator::ReplayOnAccelerator(std::optional<c10::DeviceType> accelerator) : accelerator_(accelerator) {
  if (accelerator_) hooks::wait_for_all_streams(*accelerator_);
}

ReplayOnAccelerator::~ReplayOnAccelerator() {
  if (accelerator_) hooks::wait_for_all_streams(*accelerator_);
}

size_t ReplayCheck::footprint() const {
  size_t bytes = 0;
  for (const auto* list : {&inputs, &results}) {
    for (const auto& [value, tensor] : *list) {
      if (tensor.defined() && tensor.has_storage()) bytes += tensor.storage().nbytes();
    }
  }
  return bytes;
}

std::optional<std::string> ReplayCheck::find_difference(const Graph& graph, Zeros zeros) const {
  graph.verify();
  return first_that_differs(replay(graph), results, zeros);
}

std::optional<std::string> ReplayCheck::find_difference_beside(const std::unordered_set<uint32_t>& unsteady, const Graph& graph,
                                                               Zeros zeros) const {
  return first_that_differs(replay(graph), results, zeros, unsteady);
}

std::unordered_set<uint32_t> ReplayCheck::unsteady_values(const Graph& graph) const {
  constexpr int kReplays = 6;
  const Values first = replay(graph);
  std::unordered_set<uint32_t> unsteady;
  for (int i = 1; i < kReplays; ++i) {
    const Values again = replay(graph);
    for (const auto& [value, tensor] : results) {
      const auto one = first.find(value.index), other = again.find(value.index);
      if (value.defined() && one != first.end() && other != again.end() && !same_bits(one->second, other->second))
        unsteady.insert(value.index);
    }
  }
  for (const Instr& instr : graph.instrs) {
    bool reads_one = false;
    for_each_use(instr, [&](ValueId value) { reads_one = reads_one || (value.defined() && unsteady.count(value.index) != 0); });
    if (!reads_one) continue;
    for (const ValueId output : instr.outputs) {
      if (output.defined()) unsteady.insert(output.index);
    }
  }
  return unsteady;
}

}  // namespace hindcast::capture
