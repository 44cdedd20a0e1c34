#pragma once
// Converts a formula's arguments to what ATen takes: real tensors for stand-ins, hints for symbols.

#include "capture/graph/users_op.h"
#include "capture/recorder/tracing_tensor.h"

namespace hindcast::capture {

/// The tensor behind a stand-in; any other tensor is returned unchanged.
at::Tensor real_of(const at::Tensor& tensor);

/// The same for each tensor in a tensor, a list of tensors or a list of optional tensors.
c10::IValue real_tensors(const c10::IValue& value);

c10::IValue real_argument(const c10::IValue& value, SymbolTable& symbols);

/// All tensors among the results, lists flattened.
std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& results);

}  // namespace hindcast::capture
