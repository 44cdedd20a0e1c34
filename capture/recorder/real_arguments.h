#pragma once
// From what a formula gives to an op, to what ATen takes: real tensors for stand-ins, hints for symbols.

#include "capture/graph/users_op.h"
#include "capture/recorder/tracing_tensor.h"

namespace hindcast::capture {

/// What `tensor` stands for; a tensor that is no stand-in stays.
at::Tensor real_of(const at::Tensor& tensor);

/// The same of each tensor in it: a tensor, a list of tensors or of optional ones.
c10::IValue real_tensors(const c10::IValue& value);

c10::IValue real_argument(const c10::IValue& value, SymbolTable& symbols);

/// All tensors among the results, lists flattened.
std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& results);

}  // namespace hindcast::capture
