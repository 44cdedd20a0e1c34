#include "engine/call/graph_task.h"

#include <torch/csrc/autograd/graph_task.h>

#include <unordered_set>

namespace hindcast::engine {

void publish_nodes(const capture::Collected& collected, bool has_one_root) {
  if (!collected.has_hooks && !collected.has_opaque) return;  // no user code can query it
  auto& nodes = const_cast<std::unordered_set<torch::autograd::Node*>&>(*torch::autograd::get_current_graph_task_nodes_in_graph());
  nodes.reserve(collected.calls.size());
  // LibTorch's engine adds the nodes that edges lead to. No edge leads to a single root.
  for (size_t i = has_one_root ? 1 : 0; i < collected.calls.size(); ++i) nodes.insert(collected.calls[i].node);
}

}  // namespace hindcast::engine
