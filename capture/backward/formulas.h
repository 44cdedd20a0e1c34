#pragma once
// Runs the autograd formulas of a collected backward, node by node, on other tensors in place of the saved ones. Each operator is
// dispatched in the state of the calling thread, so autograd and the recorder see it.

#include "capture/backward/collected.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/program_node.h"

#include <c10/core/SymInt.h>

#include <optional>
#include <span>
#include <vector>

namespace hindcast::capture {

class Formulas {
 public:
  /// `collected`: with CollectOptions::with_history, without opaque nodes and hooks. Packs its nodes, for the outputs that this thread's
  /// graph task needs. Throws Unsupported if a node cannot be packed.
  explicit Formulas(const Collected& collected);

  struct Inputs {
    std::span<const at::Tensor> tensors;  // replace Collected::tensors
    std::span<const c10::SymInt> integers;
    std::span<const at::Tensor> root_gradients;
  };
  struct Gradients {
    std::vector<at::Tensor> captured;   // in the order of Collected::captures
    std::vector<at::Tensor> of_leaves;  // of the AccumulateGrad nodes, in their order
  };
  /// Gradients are undefined where none arrives. Throws what a formula throws.
  Gradients run(const Inputs& inputs) const;

 private:
  class Run;
  struct Formula {
    PackedNode packed;
    std::vector<bool> needed;                   // for a write to a view: which results are needed
    std::optional<RecomputedBackward> program;  // for a ProgramNode
  };
  static Formula formula_of(const NodeCall& call);

  const Collected& collected_;
  std::vector<Formula> formulas_;  // by call; empty for nodes that are not called
};

}  // namespace hindcast::capture
