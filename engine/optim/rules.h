#pragma once
// The optimizers of torch::optim as updates of a parameter: settings of a group, and what a parameter's state counts, to formula and scalars.
// Both front ends, C++'s and Python's, ask here.

#include "engine/optim/formula.h"

#include <cstdint>

namespace hindcast::engine {

struct SgdSettings {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};
/// State: the momentum's buffer, where there is a momentum. `is_first`: the buffer becomes the gradient, whatever it holds.
Update sgd(const SgdSettings& settings, bool is_first);

struct AdamSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  bool is_decoupled = false;  // AdamW's weight decay
  bool amsgrad = false;
  bool operator==(const AdamSettings&) const = default;
};
/// State: exp_avg, exp_avg_sq and, for amsgrad, max_exp_avg_sq. `step`: 1 for the first.
Update adam(const AdamSettings& settings, double step);

struct RmspropSettings {
  double lr = 0, alpha = 0, eps = 0, weight_decay = 0, momentum = 0;
  bool centered = false;
};
/// State: square_avg, then the momentum's buffer where there is a momentum, then grad_avg if centered.
Update rmsprop(const RmspropSettings& settings);

struct AdagradSettings {
  double lr = 0, lr_decay = 0, weight_decay = 0, eps = 0;
  bool operator==(const AdagradSettings&) const = default;
};
/// State: sum. `step`: 1 for the first.
Update adagrad(const AdagradSettings& settings, double step);

}  // namespace hindcast::engine
