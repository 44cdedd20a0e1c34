#pragma once
// Detects changes that a formula makes to a tensor itself, not to its contents. The dispatcher does not see `x.data = y`: LibTorch's ATen
// calls autograd through an interface of its own, where a recorder is inserted too.

namespace hindcast::capture {

/// From now on the recorder of a thread sees `.data` and requires_grad_(). Called once.
void watch_tensors();

}  // namespace hindcast::capture
