#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hindcast::tests {

/// ATen's calls other than views that a fused plan of the backward still has.
std::vector<std::string> calls_left(const std::function<void()>& backward);

}  // namespace hindcast::tests
