// hindcast_step_*: the updates of torch::optim's optimizers, and mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>

#include <filesystem>
#include <functional>
#include <memory>

#include "tests/c_api/called.h"

namespace hindcast::tests::c_step_test {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using torch::optim::Optimizer;

Tensors parameters() {
  torch::manual_seed(5);
  return {torch::randn({7, 3}).set_requires_grad(true), torch::randn({3}).set_requires_grad(true)};
}

void set_gradients(const Tensors& parameters, int step) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = (parameter.detach() + step).sin();
}

struct Case {
  const char* name;
  int32_t kind;
  std::function<void(hindcast_optimizer&)> change;
  std::function<std::unique_ptr<Optimizer>(const Tensors&)> stock;
};

class CSteps : public testing::TestWithParam<Case> {};

TEST_P(CSteps, AreTorchOptims) {
  const Case& the = GetParam();
  hindcast_optimizer optimizer;
  ASSERT_EQ(hindcast_optimizer_init(&optimizer, sizeof(optimizer), the.kind), HINDCAST_OK);
  the.change(optimizer);
  Tensors ours = parameters();
  const Tensors stocks = parameters();
  const auto stock = the.stock(stocks);
  uint64_t step = 0;
  {
    Tensors freed = ours;  // a binding may free its own
    ASSERT_EQ(hindcast_step_create(&optimizer, pointers_to(freed).data(), freed.size(), &step), HINDCAST_OK) << hindcast_last_error();
  }
  for (int i = 0; i < 5; ++i) {
    set_gradients(ours, i);
    set_gradients(stocks, i);
    stock->step();
    ASSERT_EQ(hindcast_step_run(step), HINDCAST_OK) << hindcast_last_error();
    for (size_t p = 0; p < ours.size(); ++p) EXPECT_TRUE(ours[p].allclose(stocks[p], 1e-6, 1e-7)) << "step " << i << ", parameter " << p;
  }
  EXPECT_THAT(text_of(&hindcast_step_stats_json, step), HasSubstr("\"original\":0"));
  EXPECT_EQ(hindcast_step_zero_grad(step), HINDCAST_OK);
  EXPECT_FALSE(ours[0].grad().defined());
  EXPECT_EQ(hindcast_step_destroy(step), HINDCAST_OK);
}

std::vector<Case> cases() {
  using namespace torch::optim;
  return {
      {"sgd", HINDCAST_SGD,
       [](auto& o) {
         o.lr = 0.1;
         o.momentum = 0.9;
         o.nesterov = 1;
       },
       [](const Tensors& p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9).nesterov(true)); }},
      {"adam", HINDCAST_ADAM, [](auto&) {}, [](const Tensors& p) { return std::make_unique<Adam>(p, AdamOptions()); }},
      {"adam_amsgrad", HINDCAST_ADAM,
       [](auto& o) {
         o.lr = 0.01;
         o.beta1 = 0.8;
         o.beta2 = 0.99;
         o.eps = 1e-6;
         o.amsgrad = 1;
       },
       [](const Tensors& p) {
         return std::make_unique<Adam>(p, AdamOptions(0.01).betas({0.8, 0.99}).eps(1e-6).amsgrad(true));
       }},
      {"adamw", HINDCAST_ADAMW, [](auto&) {}, [](const Tensors& p) { return std::make_unique<AdamW>(p, AdamWOptions()); }},
      {"rmsprop", HINDCAST_RMSPROP,
       [](auto& o) {
         o.momentum = 0.5;
         o.centered = 1;
       },
       [](const Tensors& p) { return std::make_unique<RMSprop>(p, RMSpropOptions().momentum(0.5).centered(true)); }},
      {"adagrad", HINDCAST_ADAGRAD,
       [](auto& o) {
         o.lr_decay = 0.1;
         o.initial_accumulator_value = 0.2;
       },
       [](const Tensors& p) { return std::make_unique<Adagrad>(p, AdagradOptions().lr_decay(0.1).initial_accumulator_value(0.2)); }},
  };
}
INSTANTIATE_TEST_SUITE_P(Of, CSteps, testing::ValuesIn(cases()), [](const auto& info) { return std::string(info.param.name); });

hindcast_optimizer adam() {
  hindcast_optimizer optimizer;
  EXPECT_EQ(hindcast_optimizer_init(&optimizer, sizeof(optimizer), HINDCAST_ADAM), HINDCAST_OK);
  return optimizer;
}

uint64_t created(const hindcast_optimizer& optimizer, Tensors& of) {
  uint64_t step = 0;
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers_to(of).data(), of.size(), &step), HINDCAST_OK) << hindcast_last_error();
  return step;
}

TEST(CStep, ClipsTheNorm) {
  hindcast_optimizer optimizer;
  ASSERT_EQ(hindcast_optimizer_init(&optimizer, sizeof(optimizer), HINDCAST_SGD), HINDCAST_OK);
  optimizer.lr = 1;
  optimizer.clip_max_norm = 0.5;
  Tensors ours = parameters();
  const Tensors stocks = parameters();
  const uint64_t step = created(optimizer, ours);
  set_gradients(ours, 1);
  set_gradients(stocks, 1);
  const double norm = torch::nn::utils::clip_grad_norm_(stocks, 0.5);
  torch::optim::SGD(stocks, 1.0).step();
  ASSERT_EQ(hindcast_step_run(step), HINDCAST_OK) << hindcast_last_error();
  for (size_t p = 0; p < ours.size(); ++p) EXPECT_TRUE(ours[p].allclose(stocks[p], 1e-5, 1e-6));
  double ours_norm = 0;
  EXPECT_EQ(hindcast_step_grad_norm(step, &ours_norm), HINDCAST_OK);
  EXPECT_NEAR(ours_norm, norm, 1e-5);
  hindcast_step_destroy(step);
}

TEST(CStep, HasGroupsWithNumbersOfTheirOwn) {
  Tensors ours = parameters();
  const Tensors stocks = parameters();
  hindcast_optimizer optimizer = adam();
  Tensors first{ours[0]}, second{ours[1]};
  const uint64_t step = created(optimizer, first);
  optimizer.weight_decay = 0.1;
  ASSERT_EQ(hindcast_step_add_parameters(step, &optimizer, pointers_to(second).data(), 1), HINDCAST_OK) << hindcast_last_error();
  ASSERT_EQ(hindcast_step_set_learning_rate(step, 0.02), HINDCAST_OK);
  torch::optim::Adam plain({stocks[0]}, 0.02), decayed({stocks[1]}, torch::optim::AdamOptions(0.02).weight_decay(0.1));
  for (int i = 0; i < 3; ++i) {
    set_gradients(ours, i);
    set_gradients(stocks, i);
    plain.step();
    decayed.step();
    ASSERT_EQ(hindcast_step_run(step), HINDCAST_OK) << hindcast_last_error();
  }
  for (size_t p = 0; p < ours.size(); ++p) EXPECT_TRUE(ours[p].allclose(stocks[p], 1e-6, 1e-7)) << p;
  optimizer.kind = HINDCAST_SGD;
  EXPECT_EQ(hindcast_step_add_parameters(step, &optimizer, pointers_to(second).data(), 1), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("the optimizer's kind is 1, and the step's is 2"));
  hindcast_step_destroy(step);
}

TEST(CStep, IsSavedAndLoaded) {
  const std::string path = (std::filesystem::temp_directory_path() / ("hindcast_step_" + std::to_string(getpid()))).string();
  Tensors first = parameters(), second = parameters();
  const hindcast_optimizer optimizer = adam();
  const uint64_t one = created(optimizer, first), other = created(optimizer, second);
  for (int i = 0; i < 3; ++i) {
    set_gradients(first, i);
    ASSERT_EQ(hindcast_step_run(one), HINDCAST_OK);
  }
  ASSERT_EQ(hindcast_step_save(one, path.c_str()), HINDCAST_OK) << hindcast_last_error();
  {
    const torch::NoGradGuard no_grad;
    for (size_t p = 0; p < first.size(); ++p) second[p].copy_(first[p]);
  }
  ASSERT_EQ(hindcast_step_load(other, path.c_str()), HINDCAST_OK) << hindcast_last_error();
  set_gradients(first, 7);
  set_gradients(second, 7);
  ASSERT_EQ(hindcast_step_run(one), HINDCAST_OK);
  ASSERT_EQ(hindcast_step_run(other), HINDCAST_OK);
  for (size_t p = 0; p < first.size(); ++p) EXPECT_TRUE(first[p].equal(second[p]));
  std::filesystem::remove(path);
  EXPECT_EQ(hindcast_step_load(other, path.c_str()), HINDCAST_FAILED);
  EXPECT_THAT(hindcast_last_error(), HasSubstr(path));
  EXPECT_EQ(hindcast_step_save(other, nullptr), HINDCAST_INVALID_ARGUMENT);
  hindcast_step_destroy(one);
  hindcast_step_destroy(other);
}

TEST(CStep, EachMistakeIsNamed) {
  hindcast_optimizer optimizer = adam();
  Tensors all = parameters();
  std::vector<void*> pointers = pointers_to(all);
  uint64_t step = 1;
  EXPECT_EQ(hindcast_optimizer_init(&optimizer, sizeof(optimizer), 99), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("kind is 99"));
  optimizer = adam();
  EXPECT_EQ(hindcast_step_create(nullptr, pointers.data(), 2, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(step, 0U);
  EXPECT_EQ(hindcast_step_create(&optimizer, nullptr, 2, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("the array of parameters is NULL"));
  EXPECT_EQ(hindcast_step_create(&optimizer, nullptr, 0, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("there are no parameters"));
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers.data(), 2, nullptr), HINDCAST_INVALID_ARGUMENT);
  pointers[1] = nullptr;
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers.data(), 2, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("parameter 1 of 2 is NULL"));
  Tensors no_leaf{all[0] * 2};
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers_to(no_leaf).data(), 1, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("parameter 0 is no leaf that requires a gradient"));
  optimizer.lr = -1;
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers_to(all).data(), 2, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("Invalid learning rate: -1"));
  optimizer = adam();
  optimizer.clip_max_norm = -2;
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers_to(all).data(), 2, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("clip_max_norm is -2"));
  optimizer.clip_max_norm = 2;
  optimizer.clip_norm_type = NAN;
  EXPECT_EQ(hindcast_step_create(&optimizer, pointers_to(all).data(), 2, &step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("clip_norm_type is NaN"));
  step = created(adam(), all);
  EXPECT_EQ(hindcast_step_set_learning_rate(step, -3), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(hindcast_step_destroy(step), HINDCAST_OK);
  EXPECT_EQ(hindcast_step_destroy(step), HINDCAST_INVALID_ARGUMENT) << "twice";
  EXPECT_EQ(hindcast_step_run(step), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("is no step: it was destroyed"));
  double norm = 1;
  EXPECT_EQ(hindcast_step_grad_norm(step, &norm), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(norm, 0);
}

}  // namespace
}  // namespace hindcast::tests::c_step_test
