#pragma once
// An optimizer's update of one element of a parameter, as the body of a kernel.

#include "codegen/fuse/body.h"
#include "codegen/fuse/functors.h"

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <vector>

namespace hindcast::engine {

class Formula {
 public:
  using Operand = codegen::Operand;

  /// `type`: of the parameter, its gradient and its state. `clips`: the gradient is multiplied by a factor, passed after the state.
  Formula(at::ScalarType type, bool clips);

  Operand parameter() const { return parameter_; }
  Operand gradient() const { return gradient_; }
  /// The value of the state tensor with this number.
  Operand state(uint8_t number);
  /// The next of the update's scalars.
  Operand scalar() { return {Operand::Kind::Scalar, body_.scalars++}; }

  Operand add(Operand a, Operand b) { return op("add", {a, b}); }
  Operand sub(Operand a, Operand b) { return op("sub", {a, b}); }
  Operand mul(Operand a, Operand b) { return op("mul", {a, b}); }
  Operand div(Operand a, Operand b) { return op("div", {a, b}); }
  Operand maximum(Operand a, Operand b) { return op("maximum", {a, b}); }
  Operand minus_square(Operand a, Operand b) { return op("minus_square", {a, b}); }
  Operand sqrt(Operand a) { return op("sqrt", {a}); }

  void set_parameter(Operand value) { store(kParameter, value); }
  void set_state(uint8_t number, Operand value) { store(kFirstState + number, value); }

  const codegen::Body& body() const { return body_; }
  /// For each of Body::loads, then of Body::stores, its tensor: parameter, gradient, state..., or factor.
  const std::vector<uint8_t>& tensors() const { return tensors_; }

  static constexpr uint8_t kParameter = 0, kGradient = 1, kFirstState = 2, kFactor = 255;

 private:
  Operand load(uint8_t tensor, codegen::AccessPattern pattern = codegen::AccessPattern::Dense);
  Operand op(codegen::FunctorName functor, std::vector<Operand> operands);
  void store(uint8_t tensor, Operand value);

  const at::ScalarType type_;
  codegen::Body body_;
  std::vector<uint8_t> tensors_;
  Operand parameter_, gradient_;
};

/// A parameter's update in one step.
struct Update {
  /// Writes the formula for `flags`. Its address also identifies the formula.
  void (*formula)(Formula& formula, uint32_t flags) = nullptr;
  uint32_t flags = 0;
  /// In the formula's order.
  c10::SmallVector<double, 12> scalars = {};
};

}  // namespace hindcast::engine
