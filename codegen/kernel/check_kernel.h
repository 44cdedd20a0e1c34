#pragma once

#include "codegen/kernel/backend.h"

#include <optional>
#include <string>
#include <unordered_map>

namespace hindcast::codegen {

/// Runs a group's kernel, one of `backend`, on `values`, the graph's values by ATen under `env`, the symbols' values at capture, and compares what it
/// stores. Neither result is the truth where they round differently: that is the group by ATen in float64, and the kernel may
/// be four times as far from it as ATen is, plus 64 units in the last place of the largest value, plus eight times what the
/// same moves by when every value on the way is off by one unit. Layout, infinities and NaN
/// must be ATen's. Says what is wrong; nullopt: nothing is.
std::optional<std::string> find_difference(const Backend& backend, const capture::Graph& graph, const Group& group,
                                           std::shared_ptr<const Kernel> kernel, const std::unordered_map<uint32_t, at::Tensor>& values,
                                           const capture::Env& env);

}  // namespace hindcast::codegen
