#include "engine/diagnosis/verify.h"

#include "base/check.h"
#include "base/format.h"
#include "base/log.h"
#include "codegen/kernel/check_kernel.h"
#include "engine/diagnosis/reproducer.h"

#include <unordered_map>

namespace hindcast::engine {
namespace {

// The reason, and the reproducer's folder.
std::string with_reproducer(const Refused& refused) {
  const std::string folder = write_reproducer(refused);
  return folder.empty() ? refused.reason : base::format("{}\nwhat shows it is in {}", refused.reason, folder);
}

bool is_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes()));
}

}  // namespace

std::optional<std::string> verify_graph(const capture::Graph& graph, const capture::ReplayCheck& check, capture::Zeros zeros) {
  const capture::ReplayOnAccelerator alone(check.accelerator());
  auto wrong = check.find_difference(graph, zeros);
  if (wrong && check.accelerator()) {
    const auto unsteady = check.unsteady_values(graph);
    if (!unsteady.empty()) wrong = check.find_difference_beside(unsteady, graph, zeros);
    if (!wrong)
      HC_LOG(CompiledAutograd, Warning, "a captured graph is not compared to the bit: {} of its values change from replay to replay",
             unsteady.size());
  }
  if (!wrong) return std::nullopt;
  std::unordered_map<uint32_t, at::Tensor> given;
  for (const auto& [value, tensor] : check.inputs) given[value.index] = tensor;
  return with_reproducer({graph, given, *wrong});
}

std::optional<std::string> verify_capture(const capture::Graph& graph, capture::ReplayCheck& check) {
  if (!check.is_written) return verify_graph(graph, check);
  const capture::ReplayOnAccelerator alone(check.accelerator());
  capture::ReplayCheck replayed = check;
  const auto values = check.replay(graph);
  for (auto& [value, tensor] : replayed.results) {
    if (!value.defined()) continue;
    const auto found = values.find(value.index);
    // An in-place write does not explain this difference.
    if (found == values.end() || !is_alike(found->second, tensor)) return verify_graph(graph, check);
    tensor = found->second;
  }
  if (const auto difference = check.find_difference(graph)) {
    HC_LOG(CompiledAutograd, Warning,
           "a captured graph cannot be compared with its backward, in which a hook wrote in place to a gradient that others may read: {}",
           *difference);
    check = std::move(replayed);
  }
  return std::nullopt;
}

std::optional<std::string> verify_kernels(const codegen::Backend& backend, const capture::Graph& graph, const codegen::Schedule& schedule,
                                          const std::vector<std::shared_ptr<const codegen::Kernel>>& kernels,
                                          const capture::ReplayCheck& check) {
  const capture::ReplayOnAccelerator alone(check.accelerator());
  const auto values = check.replay(graph);
  capture::Env env;
  HC_CHECK(capture::Evaluator(*graph.symbols).evaluate(capture::bindings_at_capture(*graph.symbols), env));
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    if (!kernels[i]) continue;  // it runs through ATen
    const codegen::Group& group = schedule.groups[i];
    const auto wrong = codegen::find_difference(backend, graph, group, kernels[i], values, env);
    if (!wrong) continue;
    return base::format("{}\n{}\n{}", with_reproducer({graph, values, *wrong, &group}), backend.source(group.body), graph.print());
  }
  return std::nullopt;
}

}  // namespace hindcast::engine
