#pragma once
// What a function does inside of a dispatch mode that it opens, such as a FakeTensorMode. A trace begins without one.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

namespace hindcast::capture {

bool is_in_dispatch_mode();

/// Whether `is` holds for one of the tensors among the arguments.
bool any_tensor(const c10::OperatorHandle& op, const torch::jit::Stack& stack, c10::function_ref<bool(const at::Tensor&)> is);

/// Whether an argument is a symbol of another library, or has sizes that are, as the tensors have that Dynamo makes while it compiles. They
/// have no data, so nothing that a program would compute depends on them.
bool has_foreign_symbols(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

/// Whether it has data, and is no wrapper of Python's, such as a FakeTensor.
bool has_plain_data(const at::Tensor& tensor);

}  // namespace hindcast::capture
