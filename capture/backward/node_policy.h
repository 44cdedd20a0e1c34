#pragma once

#include "capture/recorder/policy.h"

namespace hindcast::capture {

/// The policy of a backward: a node with an op that cannot be recorded is called as itself, and finds everything unchanged.
class CallNodeAsItself final : public Policy {
 public:
  Answer draws_random_numbers(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer depends_on_data(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer returns_no_tensor(const c10::OperatorHandle&) override { return Answer::Refuse; }
  Answer writes_to_given(const c10::OperatorHandle&, const TracingTensor&) override { return Answer::Refuse; }
  at::Tensor lift(const at::Tensor&) override { return {}; }
};

}  // namespace hindcast::capture
