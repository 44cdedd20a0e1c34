#include "engine/graph_task.h"

#include <torch/csrc/autograd/graph_task.h>

#include <unordered_set>

namespace hindcast::engine {

void tell_nodes(const capture::Collected& collected) {
  if (!collected.has_hooks && !collected.has_opaque) return;  // nobody asks
  auto& nodes = const_cast<std::unordered_set<torch::autograd::Node*>&>(*torch::autograd::get_current_graph_task_nodes_in_graph());
  nodes.reserve(collected.calls.size());
  for (const capture::NodeCall& call : collected.calls) nodes.insert(call.node);
}

}  // namespace hindcast::engine
