#include "engine/graph_task.h"

#include <torch/csrc/autograd/graph_task.h>

#include <unordered_set>

namespace hindcast::engine {

void tell_nodes(const capture::Collected& collected, bool has_one_root) {
  if (!collected.has_hooks && !collected.has_opaque) return;  // nobody asks
  auto& nodes = const_cast<std::unordered_set<torch::autograd::Node*>&>(*torch::autograd::get_current_graph_task_nodes_in_graph());
  nodes.reserve(collected.calls.size());
  // LibTorch's engine notes the nodes that edges lead to. To a single root none does.
  for (size_t i = has_one_root ? 1 : 0; i < collected.calls.size(); ++i) nodes.insert(collected.calls[i].node);
}

}  // namespace hindcast::engine
