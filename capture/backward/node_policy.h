#pragma once

#include "capture/recorder/policy.h"

namespace hindcast::capture {

/// A backward's: what cannot be recorded is called as the autograd node that it belongs to. The node finds everything as it was.
class CallNodeAsItself final : public Policy {
 public:
  Answer draws_random_numbers(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer depends_on_data(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer returns_no_tensor(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer writes_to_given(const c10::OperatorHandle&, const TracingTensor&) override { return Answer::Refuse; }
  at::Tensor lift(const at::Tensor&) override { return {}; }
};

}  // namespace hindcast::capture
