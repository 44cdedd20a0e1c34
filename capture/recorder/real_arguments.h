#pragma once
// From what a formula gives to an op, to what ATen takes: real tensors for stand-ins, hints for symbols.

#include "capture/recorder/tracing_tensor.h"

#include <c10/util/FunctionRef.h>

namespace hindcast::capture {

/// What `tensor` stands for; a tensor that is no stand-in stays.
at::Tensor real_of(const at::Tensor& tensor);

/// A tensor, a list of tensors or of optional ones, with each of them replaced; anything else stays.
c10::IValue each_tensor(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace);
/// What they stand for.
c10::IValue real_tensors(const c10::IValue& value);

c10::IValue real_argument(const c10::IValue& value, SymbolTable& symbols);

/// All tensors among the results, lists flattened.
std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& results);

}  // namespace hindcast::capture
