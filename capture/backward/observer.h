#pragma once
// Interface for observing a backward while it is captured or run.

#include "capture/backward/backward_graph.h"

namespace hindcast::capture {

struct Resume;

/// Sees tensors; changes none and does not throw.
class Observer {
 public:
  virtual ~Observer() = default;

  /// A backward starts or resumes at `resume`. `graph` is the graph that runs, or that grows during a capture; nullptr if nodes run as
  /// themselves and nothing is recorded. `env` is nullptr for a capture.
  virtual void on_start(const Resume& resume, std::shared_ptr<const BackwardGraph> graph, const Env* env) = 0;

  /// `value` of that graph comes from outside it: a node saved it, or a hook or an opaque node returned it.
  virtual void on_input(ValueId value, const at::Tensor& tensor) = 0;

  /// `gradient` is about to be accumulated into a leaf, or is a result of grad(), at node `call`. May be undefined, as may `value`.
  virtual void on_gradient(uint32_t call, ValueId value, const at::Tensor& gradient) = 0;
};

}  // namespace hindcast::capture
