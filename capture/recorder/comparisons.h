#pragma once
// Ops that answer by a bool what all elements of two tensors say together.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace hindcast::capture {

/// equal() and allclose(): a program has them as the tensor of one element that the bool is read from.
/// equal(), which says no where sizes differ.
extern const c10::OperatorName kEqual;
bool is_comparison(const c10::OperatorName& op);

/// The calls that make this tensor: each gets what the one before it gave.
struct Comparison {
  c10::OperatorHandle of_elements;
  std::vector<c10::IValue> arguments;
  c10::OperatorHandle of_all;
};
Comparison as_tensor(const c10::OperatorName& op, const std::vector<c10::IValue>& inputs);

}  // namespace hindcast::capture
