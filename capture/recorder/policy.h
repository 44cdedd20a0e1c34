#pragma once
// Decides what a recorder does where an instr alone cannot represent what a formula does.
//
// A backward can give up one node: it calls the node as itself. A traced function cannot: it must carry the random state, copy a written
// input back, or turn a tensor that it found into an input. So each user of the recorder brings a policy, which the recorder asks before
// the op has an effect.

#include "capture/recorder/tracing_tensor.h"
#include "hindcast/graph.h"

#include <torch/csrc/autograd/edge.h>

#include <vector>

namespace hindcast::capture {

/// Record: the op becomes an instr like any other, and the policy handles the rest. Refuse: recording stops before the op runs.
enum class Answer : uint8_t { Record, Refuse };

/// A backward that a formula starts itself.
struct StartedBackward {
  std::vector<torch::autograd::Edge> roots, outputs;  // without outputs: to all leaves
  bool accumulates = false;                           // as backward() does; else as grad()
  bool knows_all = true;                              // false: it has edges that are not listed here
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual Answer draws_random_numbers(const c10::OperatorHandle& op) = 0;
  /// Called after the op has drawn them.
  virtual void has_drawn_random_numbers() {}
  /// A result is a number, or its size is known only after the op has run.
  virtual Answer depends_on_data(const c10::OperatorHandle& op) = 0;
  virtual Answer returns_no_tensor(const c10::OperatorHandle& op) = 0;
  /// The op is about to write to the tensor, or to change its geometry. Throws LibTorch's error if that is not allowed.
  virtual void check_write(const at::Tensor& /*target*/) const {}
  /// The tensor is about to be detached in place. Throws LibTorch's error if that is not allowed.
  virtual void check_detach(const at::Tensor& /*target*/) const {}
  /// `target` stands for a tensor that the formula did not make itself.
  virtual Answer writes_to_given(const c10::OperatorHandle& op, const TracingTensor& target) = 0;
  /// Returns a stand-in for a tensor that was not passed to the formula; undefined: refuse. Not asked for numbers, which become constants,
  /// nor twice for one tensor.
  virtual at::Tensor lift(const at::Tensor& outside) = 0;
  /// The formula made the tensor from numbers of the host, as torch.tensor() does: each call makes a new one.
  virtual void was_made_of_numbers(const at::Tensor& /*tensor*/) {}
  /// Whether changes to the tensor itself, not to its contents, are visible outside the formula: it was passed in, or found outside.
  virtual bool is_given(const at::Tensor& /*tensor*/) const { return false; }
  /// The formula has read the number `number` from `of`, and may branch on it.
  virtual void told_number(ValueId /*of*/, const at::Scalar& /*number*/) {}
  /// Whether a query for a stand-in's memory comes from the formula, which may then get the memory and continue unrecorded.
  virtual bool may_read_memory() { return false; }
  /// LibTorch's engine is about to run a backward that the formula starts. Returns true if the policy has replaced edges.
  virtual bool begins_backward(StartedBackward& /*backward*/) { return false; }
  /// All stand-ins have become plain tensors; the formula continues unrecorded.
  virtual void released() {}
};

}  // namespace hindcast::capture
