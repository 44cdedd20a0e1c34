#pragma once
// A node whose backward was compiled to a program ahead of time. The program is inlined into the captured graph, and is not traced op by op
// again.

#include "capture/backward/recomputed_backward.h"
#include "hindcast/graph.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace hindcast::capture {

struct NodeProgram {
  std::shared_ptr<const Graph> graph;  // computes outgoing gradients from the saved tensors, then the incoming gradients
  std::vector<uint32_t> of_edges;      // by edge of the node: the output of the graph that flows along it
  uint64_t number = 0;                 // unique in the process
};

/// Why a node without a program is called as itself: the function is being traced, or a user's compiler made its program. Not counted as an
/// opaque node.
inline constexpr char kRunsItself[] = "a function's backward that runs itself";

class ProgramNode : public torch::autograd::Node {
 public:
  using Node::Node;

  // The caller holds the node's mutex.
  /// nullptr: the node is called as itself. That is intended, unless it has several streams.
  virtual const NodeProgram* program() const = 0;
  virtual bool has_several_streams() const = 0;
  virtual std::span<const torch::autograd::SavedVariable> saved() const = 0;
  /// Values of the program's integer symbols.
  virtual std::span<const int64_t> integers() const = 0;

  /// nullopt if the node has no such program or runs on several streams. Throws std::runtime_error if an argument was modified in place
  /// since the call.
  virtual std::optional<RecomputedBackward> recomputed_backward() = 0;

  /// Computes the gradients by edge, op by op through ATen. nullopt: the program does not fit such gradients.
  virtual std::optional<torch::autograd::variable_list> run_as_captured(const torch::autograd::variable_list& gradients) = 0;
};

}  // namespace hindcast::capture
