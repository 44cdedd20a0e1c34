// The optimizer's step by kernels, compared with the optimizer's own.

#include <gtest/gtest.h>
#include <hindcast/optim.h>
#include <torch/torch.h>

#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "tests/engine/optim/optimizers.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests {
namespace {

Tensors some_parameters(at::ScalarType type) {
  Tensors parameters;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{1}, {31}, {64, 33}, {0}, {}, {3, 5, 7}, {5000}})
    parameters.push_back(torch::randn(sizes, at::kDouble).to(type));
  parameters.push_back(torch::randn({2, 8, 5, 5}, at::kDouble).to(type).contiguous(at::MemoryFormat::ChannelsLast));
  parameters.push_back(torch::randn({9, 6}, at::kDouble).to(type).t());
  return parameters;
}

Tensors some_gradients(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor gradient = torch::randn_like(parameter);
    // In float16 the square of a small gradient is 0, and the optimizers divide by 0. Kernels compute in float32.
    gradients.push_back(parameter.scalar_type() == at::kHalf ? gradient + (gradient.lt(0) * -0.5 + 0.25) : gradient);
  }
  return gradients;
}

// A step's term may be as large as the average that it is added to, and cancel it.
constexpr double kTerms = 0.1;

// Ours, the optimizer's own, and that in float64.
class ThreeOf {
 public:
  ThreeOf(const MakeOptimizer& make, const Tensors& parameters)
      : ours(copies_of(parameters)),
        stock(copies_of(parameters)),
        exact(copies_of(parameters, at::kDouble)),
        of_ours(make(ours)),
        of_stock(make(stock)),
        of_exact(make(exact)) {}

  void set_gradients(const Tensors& gradients) const {
    tests::set_gradients(ours, gradients);
    tests::set_gradients(stock, gradients);
    tests::set_gradients(exact, gradients);
  }

  void expect_alike() {
    for (size_t i = 0; i < ours.size(); ++i) {
      SCOPED_TRACE("parameter " + std::to_string(i));
      expect_near(ours[i].detach(), stock[i].detach(), exact[i].detach(), 16, kTerms);
      expect_changed_alike(ours[i], stock[i]);
      EXPECT_EQ(steps_of(*of_ours, ours[i]), steps_of(*of_stock, stock[i]));
      const Tensors state = state_of(*of_ours, ours[i]), stock_state = state_of(*of_stock, stock[i]);
      const Tensors exact_state = state_of(*of_exact, exact[i]);
      ASSERT_EQ(state.size(), stock_state.size());
      for (size_t j = 0; j < state.size(); ++j) {
        SCOPED_TRACE("state " + std::to_string(j));
        ASSERT_EQ(state[j].defined(), stock_state[j].defined());
        if (!state[j].defined()) continue;
        expect_near(state[j], stock_state[j], exact_state[j], 16, kTerms);
        expect_changed_alike(state[j], stock_state[j]);
        EXPECT_EQ(state[j].requires_grad(), stock_state[j].requires_grad());
      }
    }
  }

  // A graph that saved one of them must notice the step where it would notice the optimizer's. The version counters may differ.
  void expect_changed_alike(const at::Tensor& mine, const at::Tensor& theirs) {
    const auto has_changed = [&](const at::Tensor& tensor) {
      auto& before = versions_[tensor.unsafeGetTensorImpl()];
      return std::exchange(before, tensor._version()) != tensor._version();
    };
    EXPECT_EQ(has_changed(mine), has_changed(theirs));
  }

  Tensors ours, stock, exact;
  std::unique_ptr<torch::optim::Optimizer> of_ours, of_stock, of_exact;

 private:
  std::map<const void*, int64_t> versions_;
};

class CompiledSteps : public testing::TestWithParam<OptimizerForm> {
 protected:
  void SetUp() override { torch::manual_seed(1); }
};

TEST_P(CompiledSteps, AreTheOptimizers) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    const Tensors parameters = some_parameters(type);
    ThreeOf three(GetParam().make, parameters);
    auto step = compiled_step(*three.of_ours);
    for (int i = 0; i < 5; ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      three.set_gradients(some_gradients(parameters));
      step();
      three.of_stock->step();
      three.of_exact->step();
      three.expect_alike();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(step.counts().original, 0u) << step.counts().why_original;
    EXPECT_EQ(step.counts().compiled, 5 * parameters.size());
  }
}

TEST_P(CompiledSteps, ClipTheNorm) {
  const Tensors parameters = some_parameters(at::kFloat);
  for (const double type : {2.0, 1.0, 3.5, 0.0, std::numeric_limits<double>::infinity()}) {
    for (const double most : {0.5, 1e9}) {
      SCOPED_TRACE(std::to_string(type) + ", " + std::to_string(most));
      ThreeOf three(GetParam().make, parameters);
      auto step = compiled_step(*three.of_ours, ClipGradNorm{most, type});
      for (int i = 0; i < 3; ++i) {
        const Tensors gradients = some_gradients(parameters);
        three.set_gradients(gradients);
        for (const Tensors& of : {three.stock, three.exact})
          of[3].mutable_grad() = at::Tensor();  // without elements: no norm of infinite order
        three.ours[3].mutable_grad() = at::Tensor();
        step();
        const double norm = torch::nn::utils::clip_grad_norm_(three.stock, most, type);
        torch::nn::utils::clip_grad_norm_(three.exact, most, type);
        EXPECT_NEAR(step.grad_norm(), norm, 1e-5 * norm);
        three.of_stock->step();
        three.of_exact->step();
        three.expect_alike();
        EXPECT_TRUE(at::equal(three.ours[2].grad(), gradients[2])) << "gradients are scaled where they are read";
      }
      EXPECT_EQ(step.counts().original, 0u) << step.counts().why_original;
    }
  }
}

TEST_P(CompiledSteps, AlternateWithTheOptimizersOwn) {
  const Tensors parameters = some_parameters(at::kFloat);
  ThreeOf three(GetParam().make, parameters);
  auto step = compiled_step(*three.of_ours);
  for (int i = 0; i < 6; ++i) {
    three.set_gradients(some_gradients(parameters));
    if (i % 2 == 0) {
      step();
    } else {
      three.of_ours->step();
    }
    three.of_stock->step();
    three.of_exact->step();
    three.expect_alike();
  }
}

TEST_P(CompiledSteps, OfSavedAndLoadedState) {
  const Tensors parameters = some_parameters(at::kFloat);
  ThreeOf three(GetParam().make, parameters);
  {
    auto step = compiled_step(*three.of_ours);
    three.set_gradients(some_gradients(parameters));
    step();
    three.of_stock->step();
    three.of_exact->step();
  }
  std::stringstream file;
  torch::save(*three.of_ours, file);
  const Tensors loaded = copies_of(three.ours);
  const auto optimizer = GetParam().make(loaded);
  torch::load(*optimizer, file);
  const Tensors gradients = some_gradients(parameters);
  set_gradients(loaded, gradients);
  three.set_gradients(gradients);
  auto step = compiled_step(*optimizer), other = compiled_step(*three.of_ours);
  step();
  other();
  for (size_t i = 0; i < loaded.size(); ++i) EXPECT_TRUE(at::equal(loaded[i], three.ours[i])) << i;
}

TEST_P(CompiledSteps, WhereSomeHaveNoGradient) {
  const Tensors parameters = some_parameters(at::kFloat);
  ThreeOf three(GetParam().make, parameters);
  auto step = compiled_step(*three.of_ours);
  for (int i = 0; i < 4; ++i) {
    Tensors gradients = some_gradients(parameters);
    for (size_t j = 0; j < gradients.size(); ++j) {
      if ((j + static_cast<size_t>(i)) % 3 == 0) gradients[j] = at::Tensor();
    }
    three.set_gradients(gradients);
    step();
    three.of_stock->step();
    three.of_exact->step();
    three.expect_alike();
  }
}

// These go through the optimizer's own step, the others through kernels.
TEST_P(CompiledSteps, WhereTheMemoryOfSomeDiffers) {
  const Tensors parameters = {torch::randn({8, 6}), torch::randn({8, 6}), torch::randn({4, 12})};
  ThreeOf three(GetParam().make, parameters);
  for (const auto* of : {&three.ours, &three.stock, &three.exact})
    (*of)[1].set_data(torch::randn({16, 6}, (*of)[1].options().requires_grad(false)).slice(0, 0, 16, 2));
  for (const auto* of : {&three.ours, &three.exact}) (*of)[1].data().copy_(three.stock[1]);
  auto step = compiled_step(*three.of_ours);
  for (int i = 0; i < 3; ++i) {
    Tensors gradients = some_gradients(parameters);
    gradients[2] = torch::randn({12, 4}).t();
    for (const auto* of : {&three.ours, &three.stock, &three.exact}) {
      for (size_t j = 0; j < 3; ++j) (*of)[j].mutable_grad() = gradients[j].to((*of)[j].scalar_type());
    }
    step();
    three.of_stock->step();
    three.of_exact->step();
    three.expect_alike();
  }
  EXPECT_EQ(step.counts().compiled, 3u);
  EXPECT_EQ(step.counts().original, 6u);
}

// As in programs that pass a parameter twice, or flat memory and a view of it.
TEST_P(CompiledSteps, WhereParametersShareMemory) {
  const Tensors parameters = {torch::randn({40}), torch::randn({40})};
  const auto shared = [](const Tensors& of) {
    const at::Tensor view = of[0].detach().slice(0, 10, 30);
    return Tensors{of[0], view.requires_grad_(), of[1], of[0]};
  };
  const Tensors ours = shared(copies_of(parameters)), stock = shared(copies_of(parameters));
  const auto of_ours = GetParam().make(ours), of_stock = GetParam().make(stock);
  auto step = compiled_step(*of_ours);
  for (int i = 0; i < 3; ++i) {
    const Tensors gradients = some_gradients(stock);
    set_gradients(ours, gradients);
    set_gradients(stock, gradients);
    step();
    of_stock->step();
    for (size_t j = 0; j < ours.size(); ++j) EXPECT_TRUE(at::allclose(ours[j], stock[j], 1e-5, 1e-6)) << j;
    EXPECT_EQ(steps_of(*of_ours, ours[0]), steps_of(*of_stock, stock[0]));
  }
}

// In each step other parameters have gradients: those of one step share memory, those of the next do not, but a gradient is a parameter
// that changes before it, in a kernel that was compiled later.
TEST(CompiledStep, WhatSharesMemoryChanges) {
  const auto sides = [](const Tensors& of) { return Tensors{of[0], of[1], of[2], of[0].detach().requires_grad_()}; };
  const Tensors parameters = {torch::randn({40}), torch::randn({40}), torch::randn({40})};
  const Tensors ours = sides(copies_of(parameters)), stock = sides(copies_of(parameters));
  const auto make = [](const Tensors& of) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const size_t i : {0, 1, 2, 3}) {
      auto options = std::make_unique<torch::optim::SGDOptions>(0.1);
      options->weight_decay(i == 1 ? 0.1 : 0);
      groups.emplace_back(Tensors{of[i]}, std::move(options));
    }
    return std::make_unique<torch::optim::SGD>(std::move(groups), torch::optim::SGDOptions(0.1));
  };
  const auto of_ours = make(ours), of_stock = make(stock);
  auto step = compiled_step(*of_ours);
  const std::vector<std::vector<size_t>> with_gradients = {{0, 1, 2}, {0, 3}, {0, 1, 2}};
  for (size_t i = 0; i < with_gradients.size(); ++i) {
    for (const Tensors& of : {ours, stock}) {
      for (const at::Tensor& parameter : of) parameter.mutable_grad() = at::Tensor();
      for (const size_t j : with_gradients[i]) of[j].mutable_grad() = torch::ones({40}) * static_cast<double>(j + 1);
      if (i == 2) of[2].mutable_grad() = of[1].detach();
    }
    step();
    of_stock->step();
    for (size_t j = 0; j < ours.size(); ++j) EXPECT_TRUE(at::allclose(ours[j], stock[j], 1e-5, 1e-6)) << i << ", " << j;
  }
}

// The parameter that is written is also read as a gradient.
TEST_P(CompiledSteps, WhereAGradientIsAParameter) {
  const Tensors parameters = {torch::randn({40}), torch::randn({40})};
  ThreeOf three(GetParam().make, parameters);
  for (const Tensors& of : {three.ours, three.stock}) {
    of[0].mutable_grad() = of[1].detach();
    of[1].mutable_grad() = of[1].detach();
  }
  auto step = compiled_step(*three.of_ours);
  for (int i = 0; i < 3; ++i) {
    step();
    three.of_stock->step();
    for (size_t j = 0; j < 2; ++j) EXPECT_TRUE(at::allclose(three.ours[j], three.stock[j], 1e-5, 1e-6)) << i << ", " << j;
  }
}

TEST_P(CompiledSteps, OfComplexParametersAreTheOptimizersOwn) {
  const Tensors parameters = {torch::randn({8}, at::kComplexFloat), torch::randn({8})};
  const Tensors ours = copies_of(parameters), stock = copies_of(parameters);
  const auto of_ours = GetParam().make(ours), of_stock = GetParam().make(stock);
  auto step = compiled_step(*of_ours);
  const Tensors gradients = some_gradients(parameters);
  set_gradients(ours, gradients);
  set_gradients(stock, gradients);
  std::string error, stock_error;
  try {
    of_stock->step();
  } catch (const c10::Error& thrown) {
    stock_error = thrown.what_without_backtrace();
  }
  try {
    step();
  } catch (const c10::Error& thrown) {
    error = thrown.what_without_backtrace();
  }
  EXPECT_EQ(error, stock_error);
  if (stock_error.empty()) {
    EXPECT_TRUE(at::equal(ours[0], stock[0]));
  }
  EXPECT_EQ(step.counts().original, 1u);
}

TEST_P(CompiledSteps, FollowInfinitiesAsTheOptimizer) {
  const Tensors parameters = {torch::randn({64}), torch::randn({64})};
  for (const bool clips : {false, true}) {
    ThreeOf three(GetParam().make, parameters);
    Tensors gradients = some_gradients(parameters);
    gradients[0][5] = std::numeric_limits<float>::infinity();
    if (!clips) gradients[1][7] = std::numeric_limits<float>::quiet_NaN();
    three.set_gradients(gradients);
    auto step = clips ? compiled_step(*three.of_ours, ClipGradNorm{1.0}) : compiled_step(*three.of_ours);
    step();
    if (clips) torch::nn::utils::clip_grad_norm_(three.stock, 1.0);
    three.of_stock->step();
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(at::allclose(three.ours[i], three.stock[i], 1e-5, 1e-6, /*equal_nan=*/true)) << clips << ", " << i;
  }
}

std::string name_of(const testing::TestParamInfo<OptimizerForm>& form) { return form.param.name; }
INSTANTIATE_TEST_SUITE_P(Of, CompiledSteps, testing::ValuesIn(optimizer_forms()), name_of);

}  // namespace
}  // namespace hindcast::tests
