#include "python/csrc/run_backward.h"

#include "capture/recorder/libtorch_compat.h"
#include "engine/cache/payoff.h"
#include "engine/cache/trial.h"
#include "engine/takeover.h"
#include "python/csrc/torch_functions.h"
#include "python/csrc/warnings.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

namespace hindcast::python {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;
namespace impl = torch::autograd::impl;

void add_root(size_t i, const at::Tensor& tensor, const at::Tensor& gradient, edge_list& roots, variable_list& gradients) {
  Edge edge = impl::gradient_edge(tensor);
  TORCH_CHECK(edge.function, "element ", i, " of tensors does not require grad and does not have a grad_fn");
  roots.push_back(std::move(edge));
  if (gradient.defined()) {
    gradients.push_back(gradient);
    return;
  }
  TORCH_CHECK(!tensor.requires_grad(), "element ", i, " of gradients tuple is None, but the corresponding Tensor requires grad");
}

Edge wanted_edge(const at::Tensor& input, bool accumulate_grad) {
  const auto output_nr = static_cast<uint32_t>(input.output_nr());
  auto node = input.grad_fn();
  if (!node) node = impl::try_get_grad_accumulator(input);
  if (accumulate_grad) input.retain_grad();
  TORCH_CHECK(input.requires_grad(), "One of the differentiated Tensors does not require grad");
  // A new node is in no graph, so it is unreachable. An edge without a node would make the engine consider nodes with such edges needed.
  if (!node) return {capture::own_node(new torch::autograd::Identity), 0};
  return {std::move(node), output_nr};
}

}  // namespace

int64_t take_pause() {
  const Options* const options = engine::current_options();
  return options != nullptr && engine::backs_off(*options) ? engine::Pause::of_thread().take() : 0;
}

namespace {

struct BackOffCounter {
  int64_t unseen;
  bool are_not_faster;
};

BackOffCounter back_off_counter(engine::Trial& trial) {
  const detail::NextCalls next = trial.next();
  return next != 0 ? BackOffCounter{next, true} : BackOffCounter{take_pause(), false};
}

}  // namespace

Found run(const BackwardCall& call) {
  const auto& [tensors, given, inputs, keep_graph, create_graph, allow_unreachable, accumulate_grad, started_ns] = call;
  TORCH_CHECK(tensors.size() == given.size(), "got ", tensors.size(), " tensors and ", given.size(), " gradients");
  edge_list roots, wanted;
  variable_list gradients;
  roots.reserve(tensors.size());
  gradients.reserve(tensors.size());
  wanted.reserve(inputs.size());
  for (size_t i = 0; i < tensors.size(); ++i) add_root(i, tensors[i], given[i], roots, gradients);
  for (const at::Tensor& input : inputs) wanted.push_back(wanted_edge(input, accumulate_grad));

  engine::Trial trial(static_cast<uint64_t>(started_ns));
  Found found;
  found.gradients =
      torch::autograd::Engine::get_default_engine().execute(roots, gradients, keep_graph, create_graph, accumulate_grad, wanted);
  const BackOffCounter next = back_off_counter(trial);
  found.unseen = next.unseen;
  found.are_not_faster = next.are_not_faster;
  if (accumulate_grad) found.gradients.clear();
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    TORCH_CHECK(
        allow_unreachable || found.gradients[i].defined(),
        capture::kUnusedInputsHaveAnIndex ? c10::str("The differentiated Tensor at index ", i) : "One of the differentiated Tensors",
        " appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.");
  }
  return found;
}

Outcome run_backward(at::TensorList tensors, const OptionalTensors& grad_tensors, bool keep_graph, bool create_graph, at::TensorList inputs,
                     bool allow_unreachable, bool accumulate_grad, std::optional<int64_t> torch_functions, int64_t started_ns) {
  const KeptWarnings warnings;
  std::optional<TorchFunctions> functions;
  if (torch_functions) functions.emplace(static_cast<at::impl::TorchFunctionDisabledState>(*torch_functions));
  variable_list given;
  given.reserve(grad_tensors.size());
  for (size_t i = 0; i < grad_tensors.size(); ++i) given.push_back(grad_tensors.get(i).value_or(at::Tensor()));
  Found found = run({tensors, given, inputs, keep_graph, create_graph, allow_unreachable, accumulate_grad, started_ns});

  OptionalTensors results;
  results.reserve(found.gradients.size());
  for (at::Tensor& gradient : found.gradients) {
    results.push_back(gradient.defined() ? std::optional(std::move(gradient)) : std::nullopt);
  }
  return {std::move(results), warnings.any(), found.unseen, found.are_not_faster};
}

Outcome leave_to_pytorch(at::TensorList, const OptionalTensors&, bool, bool, at::TensorList, bool, bool, std::optional<int64_t>, int64_t) {
  return {std::nullopt, false, 0, false};
}

}  // namespace hindcast::python
