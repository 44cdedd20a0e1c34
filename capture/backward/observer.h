#pragma once
// Somebody who looks on while a backward is captured or run.

#include "capture/backward/backward_graph.h"

namespace hindcast::capture {

struct Resume;

/// Sees tensors on their way; changes none and throws nothing.
class Observer {
 public:
  virtual ~Observer() = default;

  /// A backward starts at `resume`, or goes on there. `graph` is what is run, or what grows while it is captured; null where nodes run
  /// as themselves and nothing is recorded. `env` is null for a capture.
  virtual void on_start(const Resume& resume, std::shared_ptr<const BackwardGraph> graph, const Env* env) = 0;

  /// `value` of that graph comes from outside of it: a node saved it, or a hook or an opaque node returned it.
  virtual void on_input(ValueId value, const at::Tensor& tensor) = 0;

  /// What is about to be accumulated into a leaf, or is a result of grad(), at node `call`. May be undefined, as may `value`.
  virtual void on_gradient(uint32_t call, ValueId value, const at::Tensor& gradient) = 0;
};

}  // namespace hindcast::capture
