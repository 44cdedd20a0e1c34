// A backward that is recorded for all results of a function in a call where only some of them get gradients.
//
// LibTorch's engine does not run a node whose gradients are all absent, and adds nothing for it. A program for all results contains these
// nodes, so they are recorded on zeros. Their values must not reach the call's own gradients: zeros can become NaN on the way, and a sum
// with zeros turns -0 into 0. So a value is marked absent if it depends on absent gradients alone. A sum of an absent value and another one
// is recorded as a sum, but its real tensor is a copy of the other one. If any other operator reads both kinds, the recording is of no use.

#include "capture/graph/users_op.h"
#include "capture/recorder/recorder.h"

#include <algorithm>

namespace hindcast::capture {

void Recorder::begin_with_absent_gradients() { has_absent_gradients_ = true; }

void Recorder::mark_gradients(const std::vector<at::Tensor>& stand_ins, Gradients gradients) {
  if (gradients == Gradients::None) return;
  for (const at::Tensor& stand_in : stand_ins) {
    if (const TracingTensor* traced = TracingTensor::get(stand_in)) traced->base->gradients = gradients;
  }
}

void Recorder::mark_gradient(const at::Tensor& stand_in, bool is_absent) {
  mark_gradients({stand_in}, is_absent ? Gradients::Absent : Gradients::Given);
}

bool Recorder::is_absent(const at::Tensor& gradient) {
  const TracingTensor* traced = TracingTensor::get(gradient);
  return traced != nullptr && traced->base->gradients == Gradients::Absent;
}

static const c10::OperatorName kAdd("aten::add", "Tensor");

// Returns what the results depend on.
Gradients Recorder::note_gradients(const c10::OperatorHandle& op, const OpTraits& traits, const std::vector<c10::IValue>& inputs,
                                   const std::vector<at::Tensor>& outputs) {
  if (!has_absent_gradients_) return Gradients::None;
  at::Tensor given, absent;
  for (const c10::IValue& input : inputs) {
    each_tensor(input, [&](const at::Tensor& tensor) {
      const TracingTensor* traced = TracingTensor::get(tensor);
      if (traced != nullptr && traced->base->gradients == Gradients::Given) given = tensor;
      if (traced != nullptr && traced->base->gradients == Gradients::Absent) absent = tensor;
      return tensor;
    });
  }
  has_mixed_gradients_ = has_mixed_gradients_ || traits.draws_random_numbers();
  if (!absent.defined()) return given.defined() ? Gradients::Given : Gradients::None;
  if (!given.defined()) return Gradients::Absent;
  const bool is_sum = op.operator_name() == kAdd && inputs[2].toScalar().equal(1) && given.sizes() == absent.sizes();
  has_mixed_gradients_ = has_mixed_gradients_ || !is_sum;
  if (is_sum) unrecorded([&] { at::Tensor(outputs[0]).copy_(TracingTensor::get(given)->real); });
  return Gradients::Given;
}

}  // namespace hindcast::capture
