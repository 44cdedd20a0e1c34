// hindcast_function_*: callbacks as programs, their ownership, and errors in them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/c_api/called.h"

namespace hindcast::tests::c_function_test {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

/// A callback's user data.
struct Counted {
  std::atomic<int> calls = 0, releases = 0;
  enum { Right, Fails, FailsSilently, Throws, GivesNothing, GivesAnInput, GivesOneTwice } does = Right;
};

int32_t sine_and_sum(void* user_data, void* const* inputs, uint64_t input_count, void** outputs, uint64_t output_count) {
  auto& counted = *static_cast<Counted*>(user_data);
  ++counted.calls;
  EXPECT_EQ(input_count, 2U);
  EXPECT_EQ(output_count, 2U);
  const auto& a = *static_cast<const at::Tensor*>(inputs[0]);
  const auto& b = *static_cast<const at::Tensor*>(inputs[1]);
  outputs[0] = new at::Tensor((a * b).sin());
  switch (counted.does) {
    case Counted::Fails:
      hindcast_set_error("the callback is tired");
      return 1;
    case Counted::FailsSilently:
      return -5;
    case Counted::Throws:
      throw std::runtime_error("thrown by a callback in C++");
    case Counted::GivesNothing:
      return 0;
    case Counted::GivesAnInput:
      outputs[1] = inputs[1];
      return 0;
    case Counted::GivesOneTwice:
      outputs[1] = outputs[0];
      return 0;
    case Counted::Right:
      break;
  }
  outputs[1] = new at::Tensor((a + b).tanh());
  return 0;
}
void release(void* user_data) { ++static_cast<Counted*>(user_data)->releases; }

hindcast_function_options eager() {
  hindcast_function_options options;
  EXPECT_EQ(hindcast_function_options_init(&options, sizeof(options)), HINDCAST_OK);
  options.compiler = HINDCAST_COMPILER_EAGER;
  options.back_off = 0;
  return options;
}

uint64_t created(Counted& counted) {
  const hindcast_function_options options = eager();
  uint64_t function = 0;
  EXPECT_EQ(hindcast_function_create(&sine_and_sum, &counted, &release, 2, &options, &function), HINDCAST_OK) << hindcast_last_error();
  return function;
}

Tensors leaves(int64_t size = 5) {
  return {torch::linspace(0, 1, size).set_requires_grad(true), torch::linspace(1, 2, size).set_requires_grad(true)};
}

void expect_right(uint64_t function, Tensors in = leaves()) {
  std::array<void*, 2> outputs{};
  ASSERT_EQ(hindcast_function_call(function, nullptr, pointers_to(in).data(), 2, outputs.data(), 2), HINDCAST_OK) << hindcast_last_error();
  const at::Tensor sine = taken(outputs[0]), tanh = taken(outputs[1]);
  EXPECT_TRUE(sine.allclose((in[0] * in[1]).sin()));
  EXPECT_TRUE(tanh.allclose((in[0] + in[1]).tanh()));
  (sine + tanh).sum().backward();
  const Tensors stock = {in[0].detach().requires_grad_(true), in[1].detach().requires_grad_(true)};
  ((stock[0] * stock[1]).sin() + (stock[0] + stock[1]).tanh()).sum().backward();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(in[i].grad().allclose(stock[i].grad()));
}

TEST(CFunctionThread, RunsAsPrograms) {
  Counted counted;
  const uint64_t function = created(counted);
  for (int call = 0; call < 4; ++call) expect_right(function);
  EXPECT_EQ(counted.calls, 1);
  expect_right(function, leaves(9));
  EXPECT_THAT(text_of(&hindcast_function_stats_json, function), HasSubstr("\"calls\":5,\"hits\":3,\"traces\":2,\"eager\":0"));
  EXPECT_EQ(counted.releases, 0);
  EXPECT_EQ(hindcast_function_destroy(function), HINDCAST_OK);
  EXPECT_EQ(counted.releases, 1);
  EXPECT_EQ(hindcast_function_destroy(function), HINDCAST_INVALID_ARGUMENT) << "twice";
  EXPECT_EQ(counted.releases, 1);
}

TEST(CFunctionThread, HasAProgramForEachOfTheFacts) {
  Counted counted;
  const uint64_t function = created(counted);
  Tensors in = leaves();
  for (const char* facts : {"a", "b", "a", "", "b"}) {
    std::array<void*, 2> outputs{};
    ASSERT_EQ(hindcast_function_call(function, facts, pointers_to(in).data(), 2, outputs.data(), 2), HINDCAST_OK);
    (taken(outputs[0]) + taken(outputs[1])).sum().backward();
  }
  EXPECT_EQ(counted.calls, 3) << text_of(&hindcast_function_stats_json, function);
  hindcast_function_destroy(function);
}

// Fails, and calls another function, such as one that cleans up, after it has said why.
int32_t fails_and_calls(void* user_data, void* const* inputs, uint64_t, void** /*outputs*/, uint64_t) {
  hindcast_set_error("the first error");
  std::array<void*, 2> outputs{};
  EXPECT_EQ(hindcast_function_call(*static_cast<const uint64_t*>(user_data), nullptr, inputs, 2, outputs.data(), 2), HINDCAST_OK);
  for (void* output : outputs) taken(output);
  return 1;
}

TEST(CFunctionThread, ACallInACallbackLeavesItsErrorAlone) {
  Counted counted;
  uint64_t inner = created(counted), outer = 0;
  ASSERT_EQ(hindcast_function_create(&fails_and_calls, &inner, nullptr, 2, nullptr, &outer), HINDCAST_OK);
  Tensors in = leaves();
  std::array<void*, 2> outputs{};
  EXPECT_EQ(hindcast_function_call(outer, nullptr, pointers_to(in).data(), 2, outputs.data(), 2), HINDCAST_FAILED);
  EXPECT_STREQ(hindcast_last_error(), "hindcast_function_call: the first error");
  hindcast_function_destroy(outer);
  hindcast_function_destroy(inner);
}

TEST(CFunctionThread, ResultsOutliveIt) {
  Counted counted;
  const uint64_t function = created(counted);
  Tensors in = leaves();
  std::array<void*, 2> outputs{};
  for (int call = 0; call < 2; ++call) {
    if (call == 1)
      for (void* output : outputs) taken(output);
    ASSERT_EQ(hindcast_function_call(function, nullptr, pointers_to(in).data(), 2, outputs.data(), 2), HINDCAST_OK);
  }
  EXPECT_EQ(hindcast_function_destroy(function), HINDCAST_OK);
  (taken(outputs[0]) + taken(outputs[1])).sum().backward();
  EXPECT_TRUE(in[0].grad().defined());
  EXPECT_EQ(counted.releases, 1);
}

class CCallback : public testing::TestWithParam<std::pair<decltype(Counted::does), const char*>> {};

TEST_P(CCallback, WhatGoesWrongInItIsTheCalls) {
  Counted counted;
  const uint64_t function = created(counted);
  counted.does = GetParam().first;
  Tensors in = leaves();
  std::array<void*, 2> outputs{&in, &in};
  EXPECT_EQ(hindcast_function_call(function, nullptr, pointers_to(in).data(), 2, outputs.data(), 2), HINDCAST_FAILED);
  EXPECT_STREQ(hindcast_last_error(), GetParam().second);
  EXPECT_EQ(outputs, (std::array<void*, 2>{}));
  counted.does = Counted::Right;
  expect_right(function);
  expect_right(function);
  EXPECT_EQ(hindcast_function_destroy(function), HINDCAST_OK);
}

INSTANTIATE_TEST_SUITE_P(
    Each, CCallback,
    testing::Values(std::pair(Counted::Fails, "hindcast_function_call: the callback is tired"),
                    std::pair(Counted::FailsSilently, "hindcast_function_call: the callback returned -5, without hindcast_set_error()"),
                    std::pair(Counted::Throws, "hindcast_function_call: thrown by a callback in C++"),
                    std::pair(Counted::GivesNothing, "hindcast_function_call: the callback's output 1 is NULL"),
                    std::pair(Counted::GivesAnInput,
                              "hindcast_function_call: the callback's output 1 is an input's pointer; expected a new at::Tensor"),
                    std::pair(Counted::GivesOneTwice, "hindcast_function_call: the callback's output 1 is the pointer of an earlier one")));

TEST(CFunctionThread, EachMistakeIsNamed) {
  Counted counted;
  uint64_t function = 1;
  EXPECT_EQ(hindcast_function_create(nullptr, &counted, &release, 1, nullptr, &function), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("the callback is NULL"));
  EXPECT_EQ(function, 0U);
  EXPECT_EQ(counted.releases, 1) << "also where it fails";
  EXPECT_EQ(hindcast_function_create(&sine_and_sum, &counted, nullptr, 0, nullptr, &function), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("output_count is 0"));
  hindcast_function_options options = eager();
  options.partition = 5;
  EXPECT_EQ(hindcast_function_create(&sine_and_sum, &counted, nullptr, 2, &options, &function), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("partition is 5"));
  function = created(counted);
  Tensors in = leaves();
  std::array<void*, 2> outputs{};
  EXPECT_EQ(hindcast_function_call(function, nullptr, pointers_to(in).data(), 2, outputs.data(), 1), HINDCAST_INVALID_ARGUMENT);
  EXPECT_THAT(hindcast_last_error(), HasSubstr("output_count is 1; expected 2"));
  EXPECT_EQ(hindcast_function_call(function, nullptr, pointers_to(in).data(), 2, nullptr, 2), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(hindcast_function_call(function, nullptr, nullptr, 2, outputs.data(), 2), HINDCAST_INVALID_ARGUMENT);
  EXPECT_EQ(hindcast_step_run(function), HINDCAST_INVALID_ARGUMENT) << "a function is no step";
  EXPECT_THAT(hindcast_last_error(), HasSubstr("is no step"));
  EXPECT_EQ(hindcast_function_destroy(function), HINDCAST_OK);
  EXPECT_EQ(hindcast_function_call(function, nullptr, pointers_to(in).data(), 2, outputs.data(), 2), HINDCAST_INVALID_ARGUMENT);
}

/// A callback that destroys its own function, or calls it once more.
struct OfItself {
  uint64_t function = 0;
  bool destroys = false;
  int calls = 0, releases = 0;
};
int32_t with_itself(void* user_data, void* const* inputs, uint64_t, void** outputs, uint64_t) {
  auto& self = *static_cast<OfItself*>(user_data);
  const auto& x = *static_cast<const at::Tensor*>(inputs[0]);
  if (self.destroys) {
    EXPECT_EQ(hindcast_function_destroy(self.function), HINDCAST_OK);
    EXPECT_EQ(self.releases, 0) << "it runs";
  } else if (self.calls++ == 0) {
    Tensors inner{x.detach() * 2};
    std::array<void*, 1> results{};
    EXPECT_EQ(hindcast_function_call(self.function, "inner", pointers_to(inner).data(), 1, results.data(), 1), HINDCAST_OK)
        << hindcast_last_error();
    EXPECT_TRUE(taken(results[0]).equal((x.detach() * 2).sin()));
  }
  outputs[0] = new at::Tensor(x.sin());
  return 0;
}

TEST(CFunctionThread, MayBeCalledAndDestroyedInItsCallback) {
  for (const bool destroys : {false, true}) {
    OfItself self;
    self.destroys = destroys;
    const auto count = [](void* data) { ++static_cast<OfItself*>(data)->releases; };
    const hindcast_function_options options = eager();
    ASSERT_EQ(hindcast_function_create(&with_itself, &self, count, 1, &options, &self.function), HINDCAST_OK);
    Tensors in{torch::linspace(0, 1, 5).set_requires_grad(true)};
    std::array<void*, 1> outputs{};
    ASSERT_EQ(hindcast_function_call(self.function, nullptr, pointers_to(in).data(), 1, outputs.data(), 1), HINDCAST_OK)
        << hindcast_last_error();
    taken(outputs[0]).sum().backward();
    EXPECT_TRUE(in[0].grad().allclose(in[0].detach().cos()));
    EXPECT_EQ(hindcast_function_destroy(self.function), destroys ? HINDCAST_INVALID_ARGUMENT : HINDCAST_OK);
    EXPECT_EQ(self.releases, 1);
  }
}

TEST(CFunctionThread, GoesWhenTheLastCallIsDone) {
  Counted counted;
  const uint64_t function = created(counted);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Tensors in = leaves();
      const std::vector<void*> pointers = pointers_to(in);
      std::array<void*, 2> outputs{};
      int32_t status = HINDCAST_OK;
      while ((status = hindcast_function_call(function, nullptr, pointers.data(), 2, outputs.data(), 2)) == HINDCAST_OK) {
        for (void* output : outputs) taken(output);
        ++right;
        right.notify_all();
      }
      EXPECT_EQ(status, HINDCAST_INVALID_ARGUMENT);
    });
  }
  for (int now = right; now < 20; now = right) right.wait(now);
  EXPECT_EQ(hindcast_function_destroy(function), HINDCAST_OK);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counted.releases, 1);
}

}  // namespace
}  // namespace hindcast::tests::c_function_test
