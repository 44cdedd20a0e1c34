#pragma once

#include "codegen/kernel/backend.h"

#include <optional>
#include <string>
#include <unordered_map>

namespace hindcast::codegen {

/// Runs a group's kernel, one of `backend`, on `values` and compares its results with ATen's. `values`: the graph's values by ATen, by
/// value index; `env`: the symbols' values at capture. Where roundings differ, the reference is the group by ATen in float64, and the
/// kernel's error may be four times that of ATen, plus 64 units in the last place of the largest value, plus eight times the change of the
/// reference when every intermediate value is off by one unit. Layout, infinities and NaN must be ATen's. Returns a description of the
/// difference, or nullopt if the results agree.
std::optional<std::string> find_difference(const Backend& backend, const capture::Graph& graph, const Group& group,
                                           std::shared_ptr<const Kernel> kernel, const std::unordered_map<uint32_t, at::Tensor>& values,
                                           const capture::Env& env);

}  // namespace hindcast::codegen
