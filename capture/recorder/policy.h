#pragma once
// What a recorder does where a formula does something that an instr alone cannot say.
//
// A backward can give up one node: it calls the node as itself. A traced function cannot: it has to carry the random state, copy a
// written input back, or make an input of a tensor that it found. So whoever records brings a policy, and the recorder asks it before the
// op has an effect.

#include "capture/graph/graph.h"
#include "capture/recorder/tracing_tensor.h"

namespace hindcast::capture {

/// Record: the op becomes an instr like any other, and the rest is the policy's. Refuse: recording stops before the op runs.
enum class Answer : uint8_t { Record, Refuse };

class Policy {
 public:
  virtual ~Policy() = default;

  virtual Answer draws_random_numbers(const c10::OperatorHandle& op) = 0;
  /// It has drawn them.
  virtual void has_drawn_random_numbers() {}
  /// A result is a number, or its size is known only when the op has run.
  virtual Answer depends_on_data(const c10::OperatorHandle& op) = 0;
  virtual Answer returns_no_tensor(const c10::OperatorHandle& op) = 0;
  /// `target` stands for a tensor that the formula did not make itself.
  virtual Answer writes_to_given(const c10::OperatorHandle& op, const TracingTensor& target) = 0;
  /// A stand-in for a tensor that nobody gave to the formula; undefined: refuse. Not asked for numbers, which become constants, nor
  /// twice for one tensor.
  virtual at::Tensor lift(const at::Tensor& outside) = 0;
  /// The formula made the tensor of numbers of the host, as torch.tensor() does: each call makes another.
  virtual void was_made_of_numbers(const at::Tensor& /*tensor*/) {}
  /// Whether others see what the formula does to the tensor itself, and not to its contents: it was given the tensor, or found it outside.
  virtual bool is_given(const at::Tensor& /*tensor*/) const { return false; }
  /// The formula has got a number out of `of`, and may go on as it likes.
  virtual void told_number(ValueId /*of*/, const at::Scalar& /*number*/) {}
  /// Whether somebody who asks if a stand-in has memory is the formula, which may get it and go on by itself.
  virtual bool may_read_memory() { return false; }
  /// All stand-ins have become plain tensors; the formula goes on by itself.
  virtual void released() {}
};

}  // namespace hindcast::capture
