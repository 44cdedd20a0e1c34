#pragma once
// What the emulator cannot see: NVRTC believes that a parameter with __restrict__ is read only by the thread that writes it, and drops the load
// after a barrier. So a pointer that a kernel writes and reads must not have it.

#include <string>
#include <vector>

namespace hindcast::tests::cuda {

struct RestrictTrap {
  std::string kernel, parameter;
  bool operator==(const RestrictTrap&) const = default;
};

/// The parameters of a text's kernels that have __restrict__, are written and read. A pointer that is handed on in a way that is not
/// understood counts as both; one handed to a function store...() or atomic...() counts as written.
std::vector<RestrictTrap> find_restrict_trap(const std::string& text);

}  // namespace hindcast::tests::cuda
