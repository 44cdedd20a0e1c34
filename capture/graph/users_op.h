#pragma once
// Operators from outside LibTorch, whose kernels are user code. Even below autograd a kernel may read the grad mode and `requires_grad` of
// its tensors, and Python code does: numpy() of a tensor that requires grad is an error in grad mode. So each such call records what it
// saw, and replays reproduce it.

#include "hindcast/graph.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace hindcast::capture {

/// Whether the op is neither LibTorch's nor hindcast's.
bool is_users(const c10::OperatorHandle& op);

/// The autograd state that a call with these arguments sees on this thread now.
SeenOfAutograd seen_now(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs);

/// Calls the op with the arguments on the stack, which must be its own, and leaves the results there.
void call_as_seen(const c10::OperatorHandle& op, const SeenOfAutograd& seen, torch::jit::Stack& stack);

/// A user's operator returned other tensors than those that a program is for: what it returns depends on data.
class OtherResults : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the results of a user's operator are in the graph; empty for other instrs.
std::vector<Value> users_results(const Graph& graph, const Instr& instr);

/// The tensors among an op's results, those in lists too.
std::vector<at::Tensor> tensors_on(const torch::jit::Stack& results);

/// Throws OtherResults unless the tensors have the number, dtypes and sizes of the program's values, and are defined where those are.
void expect_results(const c10::OperatorHandle& op, const torch::jit::Stack& results, c10::ArrayRef<Value> expected, const Env& env);

/// Replaces each tensor in a tensor, a list of tensors or a list of optional tensors; other values are unchanged.
c10::IValue each_tensor(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace);

}  // namespace hindcast::capture
