#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace hindcast::engine {

/// Names the first element that differs from the expected one by more than rounding of kernels explains; nullopt if none does. This detects
/// a number that the trace froze.
std::optional<std::string> find_difference(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& expected);

}  // namespace hindcast::engine
