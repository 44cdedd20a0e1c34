#pragma once
// A node whose backward is a program that was made ahead of time. Its program becomes part of the captured graph as it is, and is not
// traced op by op again.

#include "capture/backward/recomputed_backward.h"
#include "capture/graph/graph.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace hindcast::capture {

struct NodeProgram {
  std::shared_ptr<const Graph> graph;  // the saved tensors, then the gradients that flow in, to others
  std::vector<uint32_t> of_edges;      // by edge of the node: which output of the graph flows along it
  uint64_t number = 0;                 // no two programs of a process have the same
};

/// Why a node without a program is called as itself: the function is being traced, or a compiler of the user's made its program. It is no
/// opaque node for who counts them.
inline constexpr char kRunsItself[] = "a function's backward that runs itself";

class ProgramNode : public torch::autograd::Node {
 public:
  using Node::Node;

  // The caller holds the node's mutex.
  /// Null: the node is called as itself. That is meant to be so, unless it has several streams.
  virtual const NodeProgram* program() const = 0;
  virtual bool has_several_streams() const = 0;
  virtual std::span<const torch::autograd::SavedVariable> saved() const = 0;
  /// Values of the program's integer symbols.
  virtual std::span<const int64_t> integers() const = 0;

  /// Nullopt if the node has no such program or runs on several streams. Throws std::runtime_error if an argument was modified in place since
  /// the call.
  virtual std::optional<RecomputedBackward> recomputed_backward() = 0;

  /// By edge, op by op through ATen. Nullopt: the program is not for gradients like these.
  virtual std::optional<torch::autograd::variable_list> run_as_captured(const torch::autograd::variable_list& gradients) = 0;
};

}  // namespace hindcast::capture
