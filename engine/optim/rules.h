#pragma once
// The update rules of torch::optim: from a group's settings and a parameter's step count to a formula and its scalars. Used by both front
// ends, C++ and Python.

#include "engine/optim/formula.h"

#include <cstdint>

namespace hindcast::engine {

struct SgdSettings {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
/// State: the momentum buffer, if momentum is not 0. `is_first`: the buffer is set to the gradient, whatever it holds.
Update sgd(const SgdSettings& settings, bool is_first);

struct AdamSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool is_decoupled = false;  // AdamW's weight decay
  bool amsgrad = false;
  bool operator==(const AdamSettings&) const = default;
};
/// State: exp_avg, exp_avg_sq and, for amsgrad, max_exp_avg_sq. `step`: the step count, from 1.
Update adam(const AdamSettings& settings, double step);

struct RmspropSettings {
  double lr = 0, alpha = 0, eps = 0, weight_decay = 0, momentum = 0;
  bool centered = false;
};
/// State: square_avg, then the momentum buffer if momentum is not 0, then grad_avg if centered.
Update rmsprop(const RmspropSettings& settings);

struct AdagradSettings {
  double lr = 0, lr_decay = 0, weight_decay = 0, eps = 0;
  bool operator==(const AdagradSettings&) const = default;
};
/// State: sum. `step`: the step count, from 1.
Update adagrad(const AdagradSettings& settings, double step);

}  // namespace hindcast::engine
