#pragma once
// Ops that compare two tensors as a whole and return a bool: equal() and allclose().

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace hindcast::capture {

/// equal(), which is false if the sizes differ.
extern const c10::OperatorName kEqual;
/// equal() or allclose(): a program computes it as a tensor of one element, from which the bool is read.
bool is_comparison(const c10::OperatorName& op);

/// The two calls that compute this tensor; `of_all` gets the result of `of_elements`.
struct Comparison {
  c10::OperatorHandle of_elements;
  std::vector<c10::IValue> arguments;
  c10::OperatorHandle of_all;
};
Comparison as_tensor(const c10::OperatorName& op, const std::vector<c10::IValue>& inputs);

}  // namespace hindcast::capture
