#include "engine/optim/formula.h"

#include "base/check.h"

namespace hindcast::engine {

using codegen::AccessPattern;
using codegen::Operand;

Formula::Formula(at::ScalarType type, bool clips) : type_(type) {
  body_.compute = type == at::kDouble ? at::kDouble : at::kFloat;
  body_.of_sets = true;
  parameter_ = load(kParameter);
  gradient_ = load(kGradient);
  if (clips) gradient_ = mul(gradient_, load(kFactor, AccessPattern::Broadcast));
}

Operand Formula::state(uint8_t number) { return load(kFirstState + number); }

Operand Formula::load(uint8_t tensor, AccessPattern pattern) {
  HC_CHECK(body_.stores.empty(), "an optimizer's formula reads after it writes");
  const auto number = static_cast<uint32_t>(body_.loads.size());
  body_.loads.push_back({pattern == AccessPattern::Broadcast ? body_.compute : type_, pattern});
  tensors_.push_back(tensor);
  return {Operand::Kind::Load, number};
}

Operand Formula::op(codegen::FunctorName functor, std::vector<Operand> operands) {
  body_.ops.push_back({functor, std::move(operands)});
  return {Operand::Kind::Result, static_cast<uint32_t>(body_.ops.size() - 1)};
}

void Formula::store(uint8_t tensor, Operand value) {
  body_.stores.push_back({.value = value, .type = type_});
  tensors_.push_back(tensor);
}

}  // namespace hindcast::engine
