#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace hindcast::engine {

/// What tells a frozen number from rounding: which element of which tensor differs from the one expected by more than kernels round.
std::optional<std::string> find_difference(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& expected);

}  // namespace hindcast::engine
