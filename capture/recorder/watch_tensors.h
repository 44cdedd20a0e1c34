#pragma once
// What a formula does to a tensor itself, and not to its contents. No dispatcher sees `x.data = y`: LibTorch's ATen asks autograd for it by an
// interface of its own, and a recorder stands in there too.

namespace hindcast::capture {

/// From now on the recorder of a thread sees `.data` and requires_grad_(). Called once.
void watch_tensors();

}  // namespace hindcast::capture
