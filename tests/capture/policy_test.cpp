// The policy decides what a recorder does with calls that an instr cannot express.

#include "capture/recorder/policy.h"

#include "capture/backward/node_policy.h"
#include "capture/recorder/recorder.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

namespace hindcast::tests {
namespace {

using capture::Answer;
using capture::Graph;
using capture::InstrKind;
using capture::Policy;
using capture::Recorder;
using capture::ValueId;

// Like the policy of a traced function, which carries the random state and copies back.
class RecordAll final : public Policy {
 public:
  Answer draws_random_numbers(const c10::OperatorHandle&) override { return Answer::Record; }
  Answer depends_on_data(const c10::OperatorHandle&) override { return Answer::Record; }
  Answer returns_no_tensor(const c10::OperatorHandle&) override { return Answer::Record; }
  Answer writes_to_given(const c10::OperatorHandle&, const capture::TracingTensor&) override { return Answer::Record; }
  at::Tensor lift(const at::Tensor& outside) override {
    lifted.push_back(recorder->new_value(outside));
    return recorder->stand_in(outside, lifted.back());
  }

  Recorder* recorder = nullptr;
  std::vector<ValueId> lifted;
};

using Formula = std::function<void(at::Tensor)>;

struct Recorded {
  Recorded(Policy& policy, const Formula& formula) : recorder(graph, policy) {
    if (auto* all = dynamic_cast<RecordAll*>(&policy)) all->recorder = &recorder;
    EXPECT_TRUE(capture::recorder_available());
    const at::Tensor real = torch::full({3}, 0.5);
    given = recorder.new_value(real);
    stand_in = recorder.stand_in(real, given);
    recorder.begin(0);
    try {
      const Recorder::Scope scope(recorder);
      formula(stand_in);
    } catch (const std::exception& error) {
      recorder.refuse(error.what());
    }
    if (recorder.refusal()) recorder.rollback();
  }

  Graph graph;
  Recorder recorder;
  ValueId given;
  at::Tensor stand_in;
};

std::string refusal_of_a_backward(const Formula& formula) {
  capture::CallNodeAsItself policy;
  const Recorded recorded(policy, formula);
  EXPECT_TRUE(recorded.graph.instrs.empty());
  return recorded.recorder.refusal().value_or("");
}

TEST(Policy, ABackwardsRefusesAndSaysWhy) {
  const at::Tensor outside = torch::ones({3});
  EXPECT_EQ(refusal_of_a_backward([](const at::Tensor& x) { at::bernoulli(x); }), "aten::bernoulli: draws random numbers");
  EXPECT_EQ(refusal_of_a_backward([](const at::Tensor& x) { at::nonzero(x.exp()); }), "aten::nonzero: result depends on the data");
  EXPECT_EQ(refusal_of_a_backward([](const at::Tensor& x) { x.mul_(2); }),
            "aten::mul_.Scalar: writes to a tensor that the formula was given");
  EXPECT_EQ(refusal_of_a_backward([&](const at::Tensor& x) { x.add(outside).exp(); }), "reads a tensor from outside of the formula");
}

// Its schema does not say that it updates the running statistics.
TEST(Policy, ABackwardsRefusesABatchNormThatTrains) {
  const auto norm = [](const at::Tensor& statistics) {
    at::native_batch_norm(torch::ones({2, 3}), {}, {}, statistics, statistics, /*training=*/true, 0.1, 1e-5);
  };
  EXPECT_EQ(refusal_of_a_backward(norm), "aten::copy_: writes to a tensor that the formula was given");
}

TEST(Policy, AnotherMayRecordRandomNumbers) {
  RecordAll policy;
  const Recorded recorded(policy, [](const at::Tensor& x) { at::bernoulli(x); });
  EXPECT_EQ(recorded.recorder.refusal(), std::nullopt);
  EXPECT_EQ(recorded.graph.instrs.size(), 1U);
}

TEST(Policy, AnotherMayRecordAWriteToWhatWasGiven) {
  RecordAll policy;
  Recorded recorded(policy, [](const at::Tensor& x) { x.mul_(2); });
  ASSERT_EQ(recorded.graph.instrs.size(), 1U);
  EXPECT_EQ(recorded.graph.instrs[0].kind, InstrKind::Mutate);
  EXPECT_EQ(recorded.recorder.value_of(recorded.stand_in), recorded.graph.instrs[0].outputs[0]);  // what has to be copied back
}

TEST(Policy, AnotherMayLiftATensorFromOutside) {
  const at::Tensor outside = torch::ones({3});
  RecordAll policy;
  const Recorded recorded(policy, [&](const at::Tensor& x) { x.add(outside); });
  ASSERT_EQ(recorded.graph.instrs.size(), 1U);
  ASSERT_EQ(policy.lifted.size(), 1U);
  EXPECT_EQ(recorded.graph.instrs[0].args[1].values[0], policy.lifted[0]);
}

TEST(Policy, AnotherMayKeepANumber) {
  RecordAll policy;
  double number = 0;
  const Recorded recorded(policy, [&](const at::Tensor& x) { number = x.sum().item<double>(); });
  EXPECT_EQ(recorded.recorder.refusal(), std::nullopt);
  EXPECT_EQ(number, 1.5);
}

}  // namespace
}  // namespace hindcast::tests
