#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hindcast::tests {

/// Calls of ATen's that a fused plan of the backward still has, but for views.
std::vector<std::string> calls_left(const std::function<void()>& backward);

}  // namespace hindcast::tests
