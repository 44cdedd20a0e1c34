// Optimizer steps in situations chosen because they could go wrong.

#include <gtest/gtest.h>
#include <hindcast/hindcast.h>
#include <hindcast/optim.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "tests/engine/optim/optimizers.h"

namespace hindcast::tests {
namespace {

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

at::Tensor sparse_gradient(int64_t rows, int64_t columns) {
  return at::sparse_coo_tensor(torch::tensor({0, 2}, at::kLong).view({1, 2}), at::ones({2, columns}), {rows, columns});
}

class StepsUnderAttack : public testing::Test {
 protected:
  void SetUp() override {
    reset();
    torch::manual_seed(1);
  }
};

// LBFGS calls its closure many times in one step, and refuses to step without one.
TEST_F(StepsUnderAttack, AClosureOfAnOptimizerThatNeedsOne) {
  const Tensors made = {torch::randn({5})};
  for (const bool clips : {false, true}) {
    const Tensors ours = copies_of(made), stock = copies_of(made);
    torch::optim::LBFGS of_ours(ours, torch::optim::LBFGSOptions(0.5)), of_stock(stock, torch::optim::LBFGSOptions(0.5));
    const auto closure_of = [](const Tensors& parameters, torch::optim::Optimizer& optimizer, bool must_clip) {
      return [&parameters, &optimizer, must_clip] {
        optimizer.zero_grad();
        const at::Tensor loss = (parameters[0] - 3).pow(4).sum();
        loss.backward();
        if (must_clip) torch::nn::utils::clip_grad_norm_(parameters, 1.0);
        return loss;
      };
    };
    auto step = clips ? compiled_step(of_ours, ClipGradNorm{1.0}) : compiled_step(of_ours);
    for (int i = 0; i < 2; ++i) {
      const at::Tensor loss = step(closure_of(ours, of_ours, false)), expected = of_stock.step(closure_of(stock, of_stock, clips));
      EXPECT_TRUE(at::equal(loss, expected));
      EXPECT_TRUE(at::equal(ours[0], stock[0])) << clips << ", " << i;
    }
    EXPECT_EQ(step.counts().original, 2u);
  }
}

// The error occurs midway: kernels, whose state has counted the step, still finish their updates.
TEST_F(StepsUnderAttack, WhatThrowsLeavesNoUpdateHalfMade) {
  for (const bool in_order : {false, true}) {
    SCOPED_TRACE(in_order);
    const at::Tensor flat = torch::ones({40});
    const at::Tensor first = flat.slice(0, 0, 20).detach().requires_grad_();
    const at::Tensor second = (in_order ? flat.slice(0, 10, 30) : flat.slice(0, 20, 40)).detach().requires_grad_();
    const at::Tensor bad = torch::ones({4, 3}).requires_grad_();
    const Tensors parameters = {bad, first, second};
    Adam optimizer(parameters, AdamOptions(0.1));
    auto step = compiled_step(optimizer);
    first.mutable_grad() = torch::ones({20});
    second.mutable_grad() = torch::ones({20});
    bad.mutable_grad() = sparse_gradient(4, 3);
    EXPECT_NE(error_of([&] { step(); }), "");
    for (const at::Tensor& parameter : {first, second}) {
      if (steps_of(optimizer, parameter) == -1) continue;
      EXPECT_FALSE(at::equal(state_of(optimizer, parameter)[0], torch::zeros({20}))) << "a step was counted, and not made";
    }
  }
}

// amsgrad was switched on after the first step: LibTorch's own step throws, as its state has no maximum.
TEST_F(StepsUnderAttack, GradientsAreAsTheyWereWhereAStepThrows) {
  const Tensors made = {torch::randn({5}), torch::randn({7})};
  const Tensors parameters = copies_of(made), gradients = {torch::ones({5}), torch::ones({7})};
  Adam optimizer(parameters, AdamOptions(0.1));
  auto step = compiled_step(optimizer, ClipGradNorm{0.01});
  set_gradients(parameters, gradients);
  step();
  static_cast<AdamOptions&>(optimizer.param_groups()[0].options()).amsgrad(true);
  EXPECT_NE(error_of([&] { step(); }), "");
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(parameters[i].grad(), gradients[i])) << i;
}

// As in programs that maximize: the options are checked when an optimizer is constructed, and not later.
TEST_F(StepsUnderAttack, OptionsThatNoConstructorTakes) {
  const Tensors made = {torch::randn({8, 6}), torch::randn({8, 6})};
  const Tensors ours = copies_of(made), stock = copies_of(made);
  SGD of_ours(ours, SGDOptions(0.1)), of_stock(stock, SGDOptions(0.1));
  for (auto* optimizer : {&of_ours, &of_stock}) static_cast<SGDOptions&>(optimizer->param_groups()[0].options()).lr(-0.1);
  auto step = compiled_step(of_ours);
  for (const Tensors& of : {ours, stock}) {
    of[0].mutable_grad() = torch::ones({8, 6});
    of[1].mutable_grad() = torch::ones({6, 8}).t();  // not the parameter's layout: the optimizer's own step
  }
  step();
  of_stock.step();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i])) << i;
}

// The backward reads the parameter once more after its gradient, by way of detach(), and would see an update in between. Where autograd
// notices the change, it throws.
TEST_F(StepsUnderAttack, AParameterThatTheBackwardReadsAgain) {
  const at::Tensor input = torch::randn({3, 4}), made_weight = torch::randn({4, 4}), made_first = torch::randn({4, 4});
  const auto loss_of = [&](const Tensors& of) { return input.mm(of[0]).mm(of[1].detach()).tanh().mm(of[1]).sum(); };
  const auto expected = [&] {
    const Tensors of = copies_of({made_first, made_weight});
    return torch::autograd::grad({loss_of(of)}, {of[0]})[0];
  }();
  for (const bool is_sgd : {true, false}) {
    for (const bool takes_over : {false, true}) {
      SCOPED_TRACE(std::to_string(is_sgd) + ", " + std::to_string(takes_over));
      const Tensors of = copies_of({made_first, made_weight});
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      if (is_sgd) {
        optimizer = std::make_unique<SGD>(Tensors{of[1]}, SGDOptions(0.5));
      } else {
        optimizer = std::make_unique<Adam>(Tensors{of[1]}, AdamOptions(0.5));
      }
      std::optional<StepInBackward> stepping;
      for (int i = 0; i < 6; ++i) {
        if (i == 3) stepping.emplace(step_in_backward(*optimizer));  // what was compiled before did not step
        of[0].mutable_grad() = at::Tensor();
        of[1].mutable_grad() = at::Tensor();
        of[1].data().copy_(made_weight);
        Options options;
        options.async = false;
        options.compiler = compilers::fused();
        const auto guard = takes_over ? std::optional<Guard>(enable(options)) : std::nullopt;
        const std::string error = error_of([&] { loss_of(of).backward(); });
        if (!error.empty()) continue;
        EXPECT_TRUE(at::allclose(of[0].grad(), expected, 1e-4, 1e-5)) << i << ": neither an error nor the gradient";
      }
    }
  }
}

TEST_F(StepsUnderAttack, NormsThatAreNoNumbers) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (const double most : {1.0, -1.0, 0.0}) {
      for (const double order : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
        SCOPED_TRACE(std::to_string(bad) + ", " + std::to_string(most) + ", " + std::to_string(order));
        const Tensors made = {torch::randn({5}), torch::randn({7})};
        const Tensors ours = copies_of(made), stock = copies_of(made);
        SGD of_ours(ours, SGDOptions(0.1)), of_stock(stock, SGDOptions(0.1));
        Tensors gradients = {torch::randn({5}), torch::randn({7})};
        gradients[1][3] = bad;
        set_gradients(ours, gradients);
        set_gradients(stock, gradients);
        auto step = compiled_step(of_ours, ClipGradNorm{most, order});
        step();
        const double norm = torch::nn::utils::clip_grad_norm_(stock, most, order);
        of_stock.step();
        EXPECT_EQ(std::isnan(step.grad_norm()), std::isnan(norm));
        EXPECT_EQ(std::isinf(step.grad_norm()), std::isinf(norm));
        for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-5, 1e-6, /*equal_nan=*/true)) << i;
        auto strict = compiled_step(of_ours, ClipGradNorm{most, order, /*error_if_nonfinite=*/true});
        const Tensors before = copies_of(ours);
        EXPECT_NE(error_of([&] { strict(); }).find("is non-finite"), std::string::npos);
        for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(ours[i], before[i], 0, 0, /*equal_nan=*/true)) << i;
      }
    }
  }
}

// Between steps: options, groups, the memory and the dtype of a parameter.
TEST_F(StepsUnderAttack, WhatChangesBetweenSteps) {
  const Tensors made = {torch::randn({9}), torch::randn({4, 3}), torch::randn({6})};
  const Tensors ours = copies_of(made), stock = copies_of(made);
  SGD of_ours({ours[0], ours[1]}, SGDOptions(0.1)), of_stock({stock[0], stock[1]}, SGDOptions(0.1));
  auto first = compiled_step(of_ours);
  auto step = std::move(first);
  const auto options_of = [](SGD& optimizer, size_t group) -> SGDOptions& {
    return static_cast<SGDOptions&>(optimizer.param_groups()[group].options());
  };
  for (int i = 0; i < 8; ++i) {
    const auto change = [&](SGD& optimizer, const Tensors& of) {
      if (i == 1) options_of(optimizer, 0).momentum(0.9);
      if (i == 2) options_of(optimizer, 0).nesterov(true);
      if (i == 3) optimizer.add_param_group(torch::optim::OptimizerParamGroup({of[2]}, std::make_unique<SGDOptions>(0.3)));
      if (i == 4) of[0].set_data(of[0].detach().clone());
      if (i == 5) options_of(optimizer, 0).momentum(0).nesterov(false);
      if (i == 6) options_of(optimizer, 0).momentum(0.5);
      if (i == 7) of[1].set_data(of[1].detach().to(at::kDouble));
    };
    change(of_ours, ours);
    change(of_stock, stock);
    const Tensors gradients = {torch::randn({9}), torch::randn({4, 3}), torch::randn({6})};
    set_gradients(ours, gradients);
    set_gradients(stock, gradients);
    const std::string error = error_of([&] { step(); }), expected = error_of([&] { of_stock.step(); });
    EXPECT_EQ(error, expected);
    for (size_t j = 0; j < 3; ++j) EXPECT_TRUE(at::allclose(ours[j], stock[j], 1e-5, 1e-6)) << i << ", " << j;
  }
}

// A user's subclass has a step of its own.
TEST_F(StepsUnderAttack, AClassThatIsDerived) {
  class Doubled : public SGD {
   public:
    using SGD::SGD;
    at::Tensor step(LossClosure closure = nullptr) override {
      SGD::step(std::move(closure));
      return SGD::step();
    }
  };
  const Tensors ours = copies_of({torch::zeros({3})});
  Doubled optimizer(ours, SGDOptions(1));
  auto step = compiled_step(optimizer);
  set_gradients(ours, {torch::ones({3})});
  step();
  EXPECT_TRUE(at::equal(ours[0].detach(), torch::full({3}, -2.0)));
  EXPECT_EQ(step.counts().original, 1u);
  EXPECT_THROW((void)step_in_backward(optimizer), std::invalid_argument);
}

// Two optimizers share a parameter; each has its own state of it.
TEST_F(StepsUnderAttack, AParameterOfTwoOptimizers) {
  const Tensors made = {torch::randn({9})};
  const Tensors ours = copies_of(made), stock = copies_of(made);
  Adam one(ours, AdamOptions(0.1)), stock_one(stock, AdamOptions(0.1));
  RMSprop two(ours, RMSpropOptions(0.1).momentum(0.5)), stock_two(stock, RMSpropOptions(0.1).momentum(0.5));
  auto step_one = compiled_step(one), step_two = compiled_step(two);
  for (int i = 0; i < 3; ++i) {
    const Tensors gradients = {torch::randn({9})};
    set_gradients(ours, gradients);
    set_gradients(stock, gradients);
    step_one();
    step_two();
    stock_one.step();
    stock_two.step();
    EXPECT_TRUE(at::allclose(ours[0], stock[0], 1e-5, 1e-6)) << i;
  }
}

// Each of the two backwards is a step. The second one reads the weight that the first one changed: autograd throws, or it did not save that
// weight.
TEST_F(StepsUnderAttack, ARetainedGraphSteppedTwice) {
  const Tensors of = copies_of({torch::randn({4, 4})});
  SGD optimizer(of, SGDOptions(0.1));
  const auto stepping = step_in_backward(optimizer);
  const at::Tensor input = torch::randn({3, 4}).requires_grad_();
  const at::Tensor loss = input.mm(of[0]).tanh().sum(), weight = of[0].detach().clone();
  loss.backward({}, /*keep_graph=*/true);
  EXPECT_FALSE(at::equal(of[0].detach(), weight));
  EXPECT_NE(error_of([&] { loss.backward(); }).find("modified by an inplace operation"), std::string::npos);
}

}  // namespace
}  // namespace hindcast::tests
