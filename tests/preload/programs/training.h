#pragma once
// A few steps with known gradients, for programs and a plug-in that know nothing of hindcast.

#include <torch/types.h>

namespace hindcast::tests {

/// Whether the gradients of some backwards on this thread are right.
inline bool train_right() {
  const auto x = torch::linspace(0, 1, 6).set_requires_grad(true);
  bool is_right = true;
  for (int step = 0; step < 20; ++step) {
    x.mutable_grad() = torch::Tensor();
    (x.sin() * 2).sum().backward();
    is_right = is_right && x.grad().allclose(x.detach().cos() * 2);
  }
  return is_right;
}

}  // namespace hindcast::tests
