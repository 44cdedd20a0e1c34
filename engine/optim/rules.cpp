#include "engine/optim/rules.h"

#include <cmath>

namespace hindcast::engine {
namespace {

using codegen::Operand;

enum Flag : uint32_t { kWeightDecay = 1, kDecoupled = 2, kMomentum = 4, kNesterov = 8, kFirst = 16, kAmsgrad = 32, kCentered = 64 };

// Each formula reads scalars in the order in which the function after it pushes them.

Operand decayed_gradient(Formula& f, uint32_t flags) {
  return (flags & kWeightDecay) == 0 ? f.gradient() : f.add(f.gradient(), f.mul(f.parameter(), f.scalar()));
}

// average * keep + value * share
Operand averaged(Formula& f, Operand average, Operand value, Operand keep, Operand share) {
  return f.add(f.mul(average, keep), f.mul(value, share));
}
Operand averaged_square(Formula& f, Operand average, Operand value, Operand keep, Operand share) {
  return f.add(f.mul(average, keep), f.mul(f.mul(value, share), value));
}

void write_sgd(Formula& f, uint32_t flags) {
  const bool reads_buffer = (flags & kMomentum) != 0 && (flags & kFirst) == 0;
  const Operand before = reads_buffer ? f.state(0) : Operand();
  Operand gradient = decayed_gradient(f, flags), buffer = gradient;
  if ((flags & kMomentum) != 0) {
    const Operand momentum = f.scalar(), share = f.scalar();
    if (reads_buffer) buffer = averaged(f, before, gradient, momentum, share);
    gradient = (flags & kNesterov) == 0 ? buffer : f.add(gradient, f.mul(buffer, momentum));
  }
  f.set_parameter(f.add(f.parameter(), f.mul(gradient, f.scalar())));
  if ((flags & kMomentum) != 0) f.set_state(0, buffer);
}

void write_adam(Formula& f, uint32_t flags) {
  const Operand average_before = f.state(0), square_before = f.state(1);
  const bool amsgrad = (flags & kAmsgrad) != 0;
  const Operand largest_before = amsgrad ? f.state(2) : Operand();
  const Operand parameter = (flags & kDecoupled) == 0 ? f.parameter() : f.mul(f.parameter(), f.scalar());
  const Operand gradient = decayed_gradient(f, flags);
  const Operand beta1 = f.scalar(), share1 = f.scalar(), beta2 = f.scalar(), share2 = f.scalar();
  const Operand average = averaged(f, average_before, gradient, beta1, share1);
  const Operand square = averaged_square(f, square_before, gradient, beta2, share2);
  const Operand largest = amsgrad ? f.maximum(largest_before, square) : square;
  const Operand correction = f.scalar(), eps = f.scalar(), step_size = f.scalar();
  const Operand denominator = f.add(f.div(f.sqrt(largest), correction), eps);
  f.set_parameter(f.add(parameter, f.div(f.mul(average, step_size), denominator)));
  f.set_state(0, average);
  f.set_state(1, square);
  if (amsgrad) f.set_state(2, largest);
}

void write_rmsprop(Formula& f, uint32_t flags) {
  const bool has_momentum = (flags & kMomentum) != 0, is_centered = (flags & kCentered) != 0;
  const uint8_t of_average = has_momentum ? 2 : 1;
  const Operand square_before = f.state(0);
  const Operand buffer_before = has_momentum ? f.state(1) : Operand();
  const Operand average_before = is_centered ? f.state(of_average) : Operand();
  const Operand gradient = decayed_gradient(f, flags);
  const Operand alpha = f.scalar(), share = f.scalar(), eps = f.scalar();
  const Operand square = averaged_square(f, square_before, gradient, alpha, share);
  Operand average, variance = square;
  if (is_centered) {
    // As lerp_() does: of equal gradients the average becomes that gradient, with which the variance cancels.
    average = f.add(average_before, f.mul(f.sub(gradient, average_before), share));
    variance = f.minus_square(square, average);
  }
  const Operand deviation = f.add(f.sqrt(variance), eps);
  if (has_momentum) {
    const Operand buffer = f.add(f.mul(buffer_before, f.scalar()), f.div(gradient, deviation));
    f.set_parameter(f.add(f.parameter(), f.mul(buffer, f.scalar())));
    f.set_state(1, buffer);
  } else {
    f.set_parameter(f.add(f.parameter(), f.div(f.mul(gradient, f.scalar()), deviation)));
  }
  f.set_state(0, square);
  if (is_centered) f.set_state(of_average, average);
}

void write_adagrad(Formula& f, uint32_t flags) {
  const Operand before = f.state(0), gradient = decayed_gradient(f, flags);
  const Operand sum = f.add(before, f.mul(gradient, gradient)), eps = f.scalar();
  f.set_parameter(f.add(f.parameter(), f.div(f.mul(gradient, f.scalar()), f.add(f.sqrt(sum), eps))));
  f.set_state(0, sum);
}

}  // namespace

Update sgd(const SgdSettings& settings, bool is_first) {
  Update update{write_sgd};
  if (settings.weight_decay != 0) update.flags |= kWeightDecay, update.scalars.push_back(settings.weight_decay);
  if (settings.momentum != 0) {
    update.flags |= kMomentum;
    if (settings.nesterov) update.flags |= kNesterov;
    if (is_first) update.flags |= kFirst;
    update.scalars.push_back(settings.momentum);
    update.scalars.push_back(1 - settings.dampening);
  }
  update.scalars.push_back(-settings.lr);
  return update;
}

Update adam(const AdamSettings& settings, double step) {
  Update update{write_adam};
  if (settings.weight_decay != 0) {
    update.flags |= settings.is_decoupled ? kDecoupled : kWeightDecay;
    update.scalars.push_back(settings.is_decoupled ? 1 - settings.lr * settings.weight_decay : settings.weight_decay);
  }
  if (settings.amsgrad) update.flags |= kAmsgrad;
  for (const double beta : {settings.beta1, settings.beta2}) {
    update.scalars.push_back(beta);
    update.scalars.push_back(1 - beta);
  }
  update.scalars.push_back(std::sqrt(1 - std::pow(settings.beta2, step)));
  update.scalars.push_back(settings.eps);
  update.scalars.push_back(-settings.lr / (1 - std::pow(settings.beta1, step)));
  return update;
}

Update rmsprop(const RmspropSettings& settings) {
  Update update{write_rmsprop};
  if (settings.weight_decay != 0) update.flags |= kWeightDecay, update.scalars.push_back(settings.weight_decay);
  update.scalars.push_back(settings.alpha);
  update.scalars.push_back(1 - settings.alpha);
  update.scalars.push_back(settings.eps);
  if (settings.centered) update.flags |= kCentered;
  if (settings.momentum > 0) update.flags |= kMomentum, update.scalars.push_back(settings.momentum);
  update.scalars.push_back(-settings.lr);
  return update;
}

Update adagrad(const AdagradSettings& settings, double step) {
  Update update{write_adagrad};
  if (settings.weight_decay != 0) update.flags |= kWeightDecay, update.scalars.push_back(settings.weight_decay);
  update.scalars.push_back(settings.eps);
  update.scalars.push_back(-settings.lr / (1 + (step - 1) * settings.lr_decay));
  return update;
}

}  // namespace hindcast::engine
