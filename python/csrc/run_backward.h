#pragma once
// What torch._C._ImperativeEngine.run_backward does, without Python: the tensors of a call to edges, the default engine, and
// the results. The stock method calls its PythonEngine directly, past LibTorch's engine stub, which is where hindcast sits.

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

namespace hindcast::python {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

/// The gradients; whether take_warnings() has something to take; how many calls to come with the same options are the stock engine's, unseen
/// (engine/payoff.h): the caller need not come here for them; -1: the next one is timed. Whether that is since hindcast is not faster
/// (engine/trial.h).
using Outcome = std::tuple<std::optional<OptionalTensors>, bool, int64_t, bool>;

/// The arguments of a call. An undefined gradient is none.
struct BackwardCall {
  at::ArrayRef<at::Tensor> tensors, gradients, inputs;
  bool keep_graph = false, create_graph = false, allow_unreachable = false, accumulate_grad = false;
  int64_t started_ns = 0;
};
/// Of a call from C++: gradients may be undefined.
struct Found {
  std::vector<at::Tensor> gradients;
  int64_t unseen = 0;
  bool are_not_faster = false;
};
Found run(const BackwardCall& call);

/// One gradient for each of `inputs`, which may be none; an empty list when `accumulate_grad`. Call it without the GIL.
/// Checks and texts of errors are the stock method's. `torch_functions` is the TorchFunctionDisabledState under which Python
/// code in the backward runs, where it is not the caller's: under function modes an operator can be called only without them.
/// `started_ns`: when the caller's call started, of a timed one; else 0.
Outcome run_backward(at::TensorList tensors, const OptionalTensors& grad_tensors, bool keep_graph, bool create_graph, at::TensorList inputs,
                     bool allow_unreachable, bool accumulate_grad, std::optional<int64_t> torch_functions, int64_t started_ns);

/// Outcome's last part, for a call that ended by an exception.
int64_t take_pause();

/// The same for an argument that wraps another tensor for torch.func or vmap. Does nothing and gives no list: called with such an
/// argument, an operator is not given the tensor itself, which knows its node, but the one inside.
Outcome leave_to_pytorch(at::TensorList tensors, const OptionalTensors& grad_tensors, bool keep_graph, bool create_graph,
                         at::TensorList inputs, bool allow_unreachable, bool accumulate_grad, std::optional<int64_t> torch_functions,
                         int64_t started_ns);

}  // namespace hindcast::python
