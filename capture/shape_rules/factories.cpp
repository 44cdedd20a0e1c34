// Tensors made from sizes and numbers.

#include "capture/shape_rules/shape_call.h"

namespace hindcast::capture {

Outputs sizes_given(const ShapeCall& call) { return {call.integers(call.likes)}; }

namespace {

Outputs scalar(const ShapeCall&) { return {{}}; }

Outputs one_dimension(const ShapeCall& call) { return {{call.integer(call.likes)}}; }

Outputs eye(const ShapeCall& call) { return {{call.integer("n"), call.has("m") ? call.integer("m") : call.integer("n")}}; }

// LibTorch's own rounding gives the number of steps in a range of floats: a constant, from constants.
Outputs arange(const ShapeCall& call) {
  SymbolTable& s = call.symbols;
  bool has_float = false;
  for (const Argument& argument : call.args()) {
    const auto* value = std::get_if<c10::IValue>(&argument.value);
    require(value && !value->isSymFloat());
    has_float |= value->isDouble();
  }
  if (has_float) {
    for (const Argument& argument : call.args()) {
      const auto& value = std::get<c10::IValue>(argument.value);
      if (value.isSymInt()) s.pin(s.expr_of(value.toSymInt()));
    }
    return {{call.constant(call.real(0).at(0))}};
  }
  const ExprId start = call.has("start") ? call.integer("start") : call.constant(0);
  const ExprId step = call.has("step") ? call.integer("step") : call.constant(1);
  const ExprId length = s.sub(call.integer("end"), start), one = call.constant(1);
  // Rounded away from zero: (length + step - 1) / step upward, (length + step + 1) / step downward.
  const ExprId extra = s.less(call.constant(0), step) ? s.sub(step, one) : s.add(step, one);
  return {{s.div(s.add(length, extra), step)}};
}

constexpr RuleRow kFactoryRules[] = {
    {"zeros ones empty.memory_format full empty_strided empty_permuted new_zeros new_ones new_full new_empty "
     "new_empty_strided rand rand.generator randn randn.generator randint randint.generator randint.low "
     "randint.low_generator _efficientzerotensor normal.float_float",
     sizes_given, "size"},
    {"scalar_tensor", scalar},
    {"arange arange.start arange.start_step", arange},
    {"linspace logspace", one_dimension, "steps"},
    {"randperm randperm.generator", one_dimension, "n"},
    {"eye eye.m", eye},
};

}  // namespace

std::span<const RuleRow> factory_rules() { return kFactoryRules; }

}  // namespace hindcast::capture
