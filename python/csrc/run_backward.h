#pragma once
// A replacement for torch._C._ImperativeEngine.run_backward without Python: turns tensors into edges, calls the default engine, returns the
// results. The stock method calls its PythonEngine directly, bypassing LibTorch's engine stub, where hindcast is installed.

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

namespace hindcast::python {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

/// The gradients; whether take_warnings() has warnings; how many of the next calls with the same options the caller must send to the stock
/// engine directly (engine/cache/payoff.h), or -1 if the next one is timed; and whether the reason is that hindcast is not faster
/// (engine/cache/trial.h).
using Outcome = std::tuple<std::optional<OptionalTensors>, bool, int64_t, bool>;

/// The arguments of a call. An undefined gradient means none.
struct BackwardCall {
  at::ArrayRef<at::Tensor> tensors, gradients, inputs;
  bool keep_graph = false, create_graph = false, allow_unreachable = false, accumulate_grad = false;
  int64_t started_ns = 0;
};
/// The result of a call from C++. Gradients may be undefined.
struct Found {
  std::vector<at::Tensor> gradients;
  int64_t unseen = 0;
  bool are_not_faster = false;
};
Found run(const BackwardCall& call);

/// Returns one gradient, or none, for each of `inputs`; an empty list if `accumulate_grad`. Call it without the GIL. Its checks and error
/// texts are the stock method's. `torch_functions` is the TorchFunctionDisabledState for Python code in the backward, if it differs from
/// the caller's: under function modes, an operator can only be called with them off. `started_ns`: start time of a timed call; 0 otherwise.
Outcome run_backward(at::TensorList tensors, const OptionalTensors& grad_tensors, bool keep_graph, bool create_graph, at::TensorList inputs,
                     bool allow_unreachable, bool accumulate_grad, std::optional<int64_t> torch_functions, int64_t started_ns);

/// Outcome's number of next calls, for a call that ended with an exception.
int64_t take_pause();

/// run_backward() for an argument that wraps another tensor for torch.func or vmap. Does nothing and returns no list: an operator called
/// with such an argument gets the inner tensor, not the wrapper, which has the node.
Outcome leave_to_pytorch(at::TensorList tensors, const OptionalTensors& grad_tensors, bool keep_graph, bool create_graph,
                         at::TensorList inputs, bool allow_unreachable, bool accumulate_grad, std::optional<int64_t> torch_functions,
                         int64_t started_ns);

}  // namespace hindcast::python
