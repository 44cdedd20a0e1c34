// Whole training steps as CUDA graphs, on the fake card: loss, gradients, norm and updates are one launch, and equal those of the separate
// parts.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hindcast/train_step.h"
#include "tests/engine/cuda_graphs/fake_card.h"

namespace hindcast::tests::train_step_test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors&)>;

constexpr int kSteps = 10;  // the first is traced, three more are observed

template <class Optimizer, class Options>
MakeOptimizer of(Options options) {
  return [=](const Tensors& parameters) { return std::make_unique<Optimizer>(parameters, options); };
}
const MakeOptimizer kAdam = of<torch::optim::Adam>(torch::optim::AdamOptions(0.01));

/// Two layers, and a running mean that each step updates.
struct Net {
  Net() : parameters{leaf(1, fake(), {6, 8}), leaf(2, fake(), {8}), leaf(3, fake(), {8, 3})}, mean(leaf(4, fake(), {8}).detach()) {}
  Tensor loss(const Tensor& x, const Tensor& y) const {
    const Tensor hidden = (x.mm(parameters[0]) + parameters[1]).tanh();
    {
      const at::NoGradGuard no_grad;
      mean.mul_(0.9).add_(hidden.mean(0), 0.1);
    }
    return (hidden.mm(parameters[2]) - y).square().mean();
  }
  Tensors parameters;
  Tensor mean;
};

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

Tensor batch(int seed, at::IntArrayRef sizes) { return leaf(static_cast<uint64_t>(seed), fake(), sizes).detach(); }

class RecordedTrainSteps : public testing::Test {
 protected:
  void SetUp() override {
    install_fake_card();
    hindcast::reset();
    take_unordered();
    take_graph_errors();
  }
  void TearDown() override {
    EXPECT_THAT(take_unordered(), testing::IsEmpty());
    EXPECT_THAT(take_graph_errors(), testing::IsEmpty());
  }

  static TrainStepOptions options(bool clips = true) {
    TrainStepOptions options;
    options.cuda_graphs = true;
    options.aot.async = false;
    if (clips) options.clip = ClipGradNorm{0.3};
    return options;
  }

  /// `change` is called before each step, for both lanes.
  TrainStepStats expect_same_steps(
      const MakeOptimizer& make, TrainStepOptions options,
      const std::function<void(int step, Net& net, torch::optim::Optimizer& optimizer)>& change = nullptr,
      const std::function<int64_t(int step)>& rows = [](int) { return 5; }, int steps = kSteps) {
    Net ours, stock;
    const auto of_ours = make(ours.parameters), of_stock = make(stock.parameters);
    TrainStepStats stats;
    Tensors losses, expected;
    {
      auto step = train_step(
          *of_ours, [&](const Tensor& x, const Tensor& y) { return ours.loss(x, y); }, options);
      for (int i = 0; i < steps; ++i) {
        SCOPED_TRACE(i);
        if (change) change(i, ours, *of_ours), change(i, stock, *of_stock);
        const Tensor x = batch(100 + i, {rows(i), 6}), y = batch(200 + i, {rows(i), 3});
        of_stock->zero_grad();
        expected.push_back(stock.loss(x, y));
        expected.back().backward();
        double norm = 0;
        if (options.clip) norm = torch::nn::utils::clip_grad_norm_(stock.parameters, options.clip->max_norm);
        of_stock->step();
        losses.push_back(step(x, y));
        EXPECT_NEAR(step.grad_norm(), norm, 1e-5 * norm);
        for (const Tensor& parameter : ours.parameters) EXPECT_FALSE(parameter.grad().defined());
      }
      stats = step.stats();
    }
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_TRUE(at::allclose(losses[i].cpu(), expected[i].detach().cpu(), 1e-5, 1e-6)) << i;
    for (size_t i = 0; i < ours.parameters.size(); ++i) {
      EXPECT_TRUE(at::allclose(ours.parameters[i].detach().cpu(), stock.parameters[i].detach().cpu(), 1e-5, 1e-6)) << i;
    }
    EXPECT_TRUE(at::allclose(ours.mean.cpu(), stock.mean.cpu(), 1e-5, 1e-6));
    EXPECT_EQ(stats.updates.original, 0U) << stats.updates.why_original;
    return stats;
  }
};

TEST_F(RecordedTrainSteps, AreTheStepsOfEachOptimizer) {
  using namespace torch::optim;
  const std::vector<MakeOptimizer> all = {
      of<SGD>(SGDOptions(0.1)),          of<SGD>(SGDOptions(0.1).momentum(0.9)), kAdam, of<AdamW>(AdamWOptions(0.01).weight_decay(0.1)),
      of<RMSprop>(RMSpropOptions(0.01)), of<Adagrad>(AdagradOptions(0.1))};
  for (const MakeOptimizer& make : all) {
    for (const bool clips : {false, true}) {
      const TrainStepStats stats = expect_same_steps(make, options(clips));
      EXPECT_EQ(stats.cuda_graph_launches, 6U) << stats.why_no_cuda_graph;
      EXPECT_GT(stats.cuda_graph_bytes, 0U);
    }
  }
}

TEST_F(RecordedTrainSteps, RatesChangeFromStepToStep) {
  const auto stats = expect_same_steps(kAdam, options(),
                                       [](int step, Net&, torch::optim::Optimizer& optimizer) { set_rate(optimizer, 0.01 / (1 + step)); });
  EXPECT_EQ(stats.cuda_graph_launches, 6U);
}

TEST_F(RecordedTrainSteps, EachSizeHasItsOwn) {
  const auto stats = expect_same_steps(
      kAdam, options(), nullptr, [](int step) { return step % 2 == 0 ? 5 : 9; }, 24);
  EXPECT_GE(stats.cuda_graph_launches, 12U);
}

TEST_F(RecordedTrainSteps, AParameterThatLiesElsewhereIsRecordedAgain) {
  const auto stats = expect_same_steps(
      kAdam, options(),
      [](int step, Net& net, torch::optim::Optimizer&) {
        if (step == 7) net.parameters[0].set_data(net.parameters[0].detach() * 2);
      },
      [](int) { return 5; }, 16);
  EXPECT_EQ(stats.cuda_graph_launches, 3U + 6U);
}

// State allocated during the recording would lie in the graph's memory, and each launch would initialize it again.
TEST_F(RecordedTrainSteps, StateMayBeMadeAnewAtAnyStep) {
  using namespace torch::optim;
  for (const MakeOptimizer& make :
       {kAdam, of<SGD>(SGDOptions(0.1).momentum(0.9)), of<RMSprop>(RMSpropOptions(0.01).momentum(0.9).eps(1e-2))}) {
    for (const int at : {1, 3, 4, 5, 7}) {
      SCOPED_TRACE(at);
      expect_same_steps(
          make, options(),
          [&](int step, Net&, Optimizer& optimizer) {
            if (step == at) optimizer.state().clear();
          },
          [](int) { return 5; }, 14);
    }
  }
}

TEST_F(RecordedTrainSteps, AMomentumMayBegin) {
  using namespace torch::optim;
  expect_same_steps(
      of<SGD>(SGDOptions(0.1)), options(),
      [](int step, Net&, Optimizer& optimizer) {
        if (step == 7) static_cast<SGDOptions&>(optimizer.param_groups()[0].options()).momentum(0.9);
      },
      [](int) { return 5; }, 14);
}

TEST_F(RecordedTrainSteps, AFailedCaptureChangesNothing) {
  const FailingCaptures failing;
  const auto stats = expect_same_steps(kAdam, options());
  EXPECT_EQ(stats.cuda_graph_launches, 0U);
  EXPECT_THAT(stats.why_no_cuda_graph, testing::HasSubstr("it cannot be captured"));
}

TEST_F(RecordedTrainSteps, OnSeveralDevicesAreRunByTheirParts) {
  Net net;
  const auto optimizer = kAdam(net.parameters);
  auto step = train_step(
      *optimizer, [&](const Tensor& x, const Tensor& y) { return net.loss((x.to(fake(1)) * 2).to(fake()), y); }, options());
  for (int i = 0; i < kSteps; ++i) step(batch(i, {5, 6}), batch(i, {5, 3}));
  EXPECT_EQ(step.stats().cuda_graph_launches, 0U);
  EXPECT_THAT(step.stats().why_no_cuda_graph, testing::HasSubstr("several devices"));
}

TEST_F(RecordedTrainSteps, NoRoom) {
  TrainStepOptions few = options();
  few.cuda_graph_bytes = 16;
  const auto stats = expect_same_steps(kAdam, few);
  EXPECT_EQ(stats.cuda_graph_launches, 0U);
  EXPECT_EQ(stats.cuda_graph_bytes, 0U);
  EXPECT_THAT(stats.why_no_cuda_graph, testing::HasSubstr("has no room"));
}

TEST_F(RecordedTrainSteps, WhatDrawsRandomNumbersIsRunByItsParts) {
  Net net;
  const auto optimizer = kAdam(net.parameters);
  auto step = train_step(
      *optimizer, [&](const Tensor& x, const Tensor& y) { return net.loss(at::dropout(x, 0.5, true), y); }, options());
  for (int i = 0; i < kSteps; ++i) step(batch(i, {5, 6}), batch(i, {5, 3}));
  EXPECT_EQ(step.stats().cuda_graph_launches, 0U);
  EXPECT_THAT(step.stats().why_no_cuda_graph, testing::HasSubstr("draws random numbers"));
}

TEST_F(RecordedTrainSteps, WhatAsksTheHostIsRunByItsParts) {
  Net net;
  const auto optimizer = kAdam(net.parameters);
  auto step = train_step(
      *optimizer,
      [&](const Tensor& x, const Tensor& y) {
        at::_assert_async(x.sum() < 1e9);
        return net.loss(x, y);
      },
      options());
  for (int i = 0; i < kSteps; ++i) step(batch(i, {5, 6}), batch(i, {5, 3}));
  EXPECT_EQ(step.stats().cuda_graph_launches, 0U);
  EXPECT_THAT(step.stats().why_no_cuda_graph, testing::HasSubstr("only checks its operand"));
}

TEST_F(RecordedTrainSteps, AHookEndsIt) {
  Net net;
  const auto optimizer = kAdam(net.parameters);
  auto step = train_step(
      *optimizer, [&](const Tensor& x, const Tensor& y) { return net.loss(x, y); }, options());
  for (int i = 0; i < kSteps; ++i) step(batch(i, {5, 6}), batch(i, {5, 3}));
  int calls = 0;
  net.parameters[0].register_hook([&](const Tensor& gradient) { return ++calls, gradient; });
  const uint64_t before = step.stats().cuda_graph_launches;
  for (int i = 0; i < 2; ++i) step(batch(i, {5, 6}), batch(i, {5, 3}));
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(step.stats().cuda_graph_launches, before);
}

Tensor slope_of(const Tensor& value, const Tensor& of) {
  return torch::autograd::grad({value.sum()}, {of}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

// A physics-informed net: its Laplacian has a target. The last bias gets no gradient, so it never has optimizer state.
TEST_F(RecordedTrainSteps, ALossThatContainsGradients) {
  const auto train = [](bool is_stock) {
    Tensors parameters = {leaf(1, fake(), {2, 8}), leaf(2, fake(), {8}), leaf(3, fake(), {8, 1}), leaf(4, fake(), {1})};
    const auto optimizer = kAdam(parameters);
    const auto loss_of = [&](const Tensor& points, const Tensor& wanted) {
      const Tensor x = points.detach().requires_grad_();
      const Tensor slope = slope_of(at::tanh(x.mm(parameters[0]) + parameters[1]).mm(parameters[2]) + parameters[3], x);
      const Tensor laplacian = slope_of(slope.select(1, 0), x).select(1, 0) + slope_of(slope.select(1, 1), x).select(1, 1);
      return (laplacian * 0.5 - wanted.select(1, 0)).square().mean();
    };
    auto step = train_step(*optimizer, loss_of, options());
    for (int i = 0; i < kSteps; ++i) {
      const Tensor points = batch(i, {5, 2}), wanted = batch(i, {5, 1});
      if (!is_stock) {
        step(points, wanted);
        continue;
      }
      optimizer->zero_grad();
      loss_of(points, wanted).backward();
      torch::nn::utils::clip_grad_norm_(parameters, 0.3);
      optimizer->step();
    }
    if (!is_stock) EXPECT_EQ(step.stats().cuda_graph_launches, 6U) << step.stats().why_no_cuda_graph;
    return parameters;
  };
  const Tensors ours = train(false), stock = train(true);
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i].cpu(), stock[i].cpu(), 1e-5, 1e-6)) << i;
}

TEST_F(RecordedTrainSteps, ResetGivesTheirMemoryBack) {
  Net net;
  const auto optimizer = kAdam(net.parameters);
  auto step = train_step(
      *optimizer, [&](const Tensor& x, const Tensor& y) { return net.loss(x, y); }, options());
  for (int i = 0; i < kSteps; ++i) step(batch(i, {5, 6}), batch(i, {5, 3}));
  const double norm = step.grad_norm();
  EXPECT_GT(step.stats().cuda_graph_bytes, 0U);
  step.reset();
  EXPECT_EQ(step.stats().cuda_graph_bytes, 0U);
  EXPECT_EQ(step.grad_norm(), norm);
}

}  // namespace
}  // namespace hindcast::tests::train_step_test
