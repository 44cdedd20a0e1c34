#pragma once
// Operators that are not LibTorch's, whose kernels are the user's code. Below autograd a kernel may still ask for the grad mode and for
// `requires_grad` of its tensors, and Python's code does: numpy() of a tensor that requires grad is an error where grad mode is on. So each such
// call says what it saw, and replays let it see that again.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <vector>

namespace hindcast::capture {

struct SeenOfAutograd {
  bool is_noted = false;       // else it is an operator of LibTorch's or ours
  bool grad_mode = false;      // of the thread
  uint64_t requires_grad = 0;  // by tensor among the arguments, lists flattened

  bool operator==(const SeenOfAutograd&) const = default;
};

/// Not LibTorch's, nor ours.
bool is_users(const c10::OperatorHandle& op);

/// Of a call with these arguments, on this thread now.
SeenOfAutograd seen_now(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs);

/// Calls the op with the arguments on the stack, which are its own, and leaves the results there.
void call_as_seen(const c10::OperatorHandle& op, const SeenOfAutograd& seen, torch::jit::Stack& stack);

/// A tensor, a list of tensors or of optional ones, with each of them replaced; anything else stays.
c10::IValue each_tensor(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace);

}  // namespace hindcast::capture
