// AotOptions::back_off: calls that gain nothing are left to the function, and tried again later.

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "hindcast/detail/back_off_policy.h"

namespace hindcast::tests::back_off_policy_test {
namespace {

using detail::BackOffCounter;
using detail::BackOffPolicy;
using detail::Gain;
using detail::kTimed;
using detail::NextCalls;

constexpr int kPatience = 32, kTurns = 16, kLooks = 32;
constexpr NextCalls kMost = 1023, kMostAfterErrors = 255;

/// Calls up to the first that is timed.
NextCalls until_timed(BackOffPolicy& policy, Gain gain, const void* program, int most = 3000) {
  NextCalls next = 0;
  for (int i = 0; i < most && next == 0; ++i) next = policy.looked(gain, program);
  return next;
}

/// A program that takes `program_ns` and the function alternate.
NextCalls compare(BackOffPolicy& policy, const void* program, uint64_t program_ns, uint64_t own_ns) {
  NextCalls next = kTimed;
  for (int i = 0; i < kTurns && next == kTimed; ++i) {
    const bool is_functions = policy.is_functions_turn(program);
    policy.looked(Gain::Perhaps, program);
    next = is_functions ? policy.took(own_ns + 100, own_ns) : policy.took(program_ns, 0);
  }
  return next;
}

TEST(BackOffPolicy, EagerCallsAreTimedAndThenLeft) {
  BackOffPolicy policy;
  for (int i = 0; i < kPatience - 1; ++i) EXPECT_EQ(policy.looked(Gain::None, nullptr), 0);
  EXPECT_EQ(policy.looked(Gain::None, nullptr), kTimed);
  for (int i = 0; i < kTurns - 1; ++i) {
    policy.looked(Gain::None, nullptr);
    EXPECT_EQ(policy.took(9000, 4000), kTimed);
  }
  EXPECT_EQ(policy.took(9000, 4000), kMost);
}

TEST(BackOffPolicy, AsManyAsTakeTenMillisecondsAreLeft) {
  BackOffPolicy policy;
  until_timed(policy, Gain::None, nullptr);
  NextCalls next = kTimed;
  for (int i = 0; i < kTurns; ++i) next = policy.took(2'200'000, 2'000'000);
  EXPECT_EQ(next, 5);
}

TEST(BackOffPolicy, MoreAreLeftIfThoseThatWereTookLessThanTheTimedOnes) {
  BackOffPolicy policy;
  until_timed(policy, Gain::None, nullptr);
  NextCalls next = kTimed;
  for (int i = 0; i < kTurns; ++i) next = policy.took(2'200'000, 2'000'000);
  ASSERT_EQ(next, 5);
  for (int i = 0; i < kLooks - 1; ++i) next = policy.looked(Gain::None, nullptr);
  EXPECT_GT(next, 5);
}

TEST(BackOffPolicy, WhereTheFunctionTakesNearlyAllOfACallNoneAreLeft) {
  for (const uint64_t own : {100'000U, 20'000'000U}) {
    BackOffPolicy policy;
    until_timed(policy, Gain::None, nullptr);
    NextCalls next = kTimed;
    for (int i = 0; i < kTurns; ++i) next = policy.took(own + own / 100, own);
    EXPECT_EQ(next, 0);
  }
}

TEST(BackOffPolicy, CallsThatThrowInARowAreLeftWithoutBeingTimed) {
  BackOffPolicy policy;
  for (int i = 0; i < kPatience - 1; ++i) EXPECT_EQ(policy.threw(), 0);
  NextCalls last = policy.threw();
  EXPECT_GT(last, 0);
  for (int i = 0; i < 100; ++i) {
    const NextCalls next = policy.threw();
    EXPECT_GE(next, last);
    last = next;
  }
  EXPECT_EQ(last, kMostAfterErrors);
  EXPECT_EQ(policy.looked(Gain::Some, nullptr), 0);
  EXPECT_EQ(policy.threw(), 0);
}

TEST(BackOffPolicy, AProgramThatIsSlowerThanTheFunctionIsLeft) {
  BackOffPolicy policy;
  const int program = 0;
  EXPECT_EQ(until_timed(policy, Gain::Perhaps, &program), kTimed);
  EXPECT_EQ(compare(policy, &program, 5000, 1000), kMost);
}

TEST(BackOffPolicy, AProgramThatIsFasterStaysAndIsTriedAgainEverMoreRarely) {
  BackOffPolicy policy;
  const int program = 0;
  for (const int calls : {32, 256, 2048, 2048}) {
    for (int i = 0; i < calls - 1; ++i) ASSERT_EQ(policy.looked(Gain::Perhaps, &program), 0) << i << " of " << calls;
    ASSERT_EQ(policy.looked(Gain::Perhaps, &program), kTimed);
    EXPECT_EQ(compare(policy, &program, 1000, 5000), 0);
  }
}

/// The same with backwards. `program_ns` and `own_ns` are for call and backward together; 0: no backward comes.
NextCalls compare_with_backwards(BackOffPolicy& policy, const void* program, uint64_t program_ns, uint64_t own_ns) {
  NextCalls next = kTimed;
  for (int i = 0; i < kTurns && next == kTimed; ++i) {
    const bool is_functions = policy.is_functions_turn(program);
    policy.looked(Gain::PerhapsWithBackward, program);
    const uint64_t backward_ns = is_functions ? own_ns : program_ns;
    if (backward_ns != 0) policy.took_backward(program, backward_ns - 1000, is_functions);
    next = is_functions ? policy.took(1100, 1000) : policy.took(1000, 0);
  }
  return next;
}

TEST(BackOffPolicy, BackwardsCount) {
  const int program = 0;
  const auto next = [&](uint64_t program_ns, uint64_t own_ns) {
    BackOffPolicy policy;
    until_timed(policy, Gain::PerhapsWithBackward, &program);
    return compare_with_backwards(policy, &program, program_ns, own_ns);
  };
  EXPECT_EQ(next(5000, 4000), kMost);
  EXPECT_EQ(next(4000, 5000), 0);
  EXPECT_EQ(next(4900, 5000), kMost) << "what its node costs besides is not timed";
  EXPECT_EQ(next(0, 0), 0) << "calls without a backward, which take the same time";
  EXPECT_EQ(next(0, 5000), 0) << "the program's backwards are still to come";
  EXPECT_EQ(next(5000, 0), 0);
}

TEST(BackOffPolicy, BackwardsOfOtherProgramsDoNotCount) {
  const int program = 0, other = 0;
  BackOffPolicy policy;
  EXPECT_EQ(policy.timed_kind(), nullptr);
  until_timed(policy, Gain::PerhapsWithBackward, &program);
  EXPECT_EQ(policy.timed_kind(), &program);
  policy.took_backward(&other, 1, /*is_own=*/true);
  EXPECT_EQ(compare_with_backwards(policy, &program, 4000, 5000), 0);
  EXPECT_EQ(policy.timed_kind(), nullptr);
}

// A function of one autograd node, which a program has too. Programs and the function alternate; then some calls are left, or not.
TEST(BackOffPolicy, FunctionsOfOneNodeHaveTheirGradientsInEachTurn) {
  const auto function = [](const at::Tensor& x) { return x.flip(0); };
  const auto compiled = hindcast::aot_function(function);
  for (int i = 0; i < 400; ++i) {
    const auto x = at::randn({8}).set_requires_grad(true), weight = at::randn({8});
    (compiled(x) * weight).sum().backward();
    ASSERT_TRUE(at::equal(x.grad(), weight.flip(0))) << i;
    if (i % 3 == 0) {
      const auto y = at::randn({8}).set_requires_grad(true);
      const auto slope = torch::autograd::grad({compiled(y).pow(2).sum()}, {y}, {}, {}, /*create_graph=*/true)[0];
      slope.sum().backward();
      ASSERT_TRUE(at::equal(y.grad(), at::full({8}, 2.0))) << i;
    }
  }
}

TEST(BackOffPolicy, AVerdictIsTriedAgain) {
  BackOffPolicy policy;
  const int program = 0;
  until_timed(policy, Gain::Perhaps, &program);
  compare(policy, &program, 5000, 1000);
  for (int i = 0; i < kLooks - 1; ++i) EXPECT_EQ(policy.looked(Gain::Perhaps, &program), kMost);
  EXPECT_EQ(policy.looked(Gain::Perhaps, &program), kTimed);
  EXPECT_EQ(compare(policy, &program, 1000, 5000), 0) << "it is faster now";
  EXPECT_EQ(policy.looked(Gain::Perhaps, &program), 0);
}

TEST(BackOffPolicy, ACallThatGainsEndsIt) {
  BackOffPolicy policy;
  until_timed(policy, Gain::None, nullptr);
  for (int i = 0; i < kTurns; ++i) policy.took(9000, 4000);
  EXPECT_EQ(policy.looked(Gain::None, nullptr), kMost);
  EXPECT_EQ(policy.looked(Gain::Some, nullptr), 0);
  EXPECT_EQ(policy.looked(Gain::None, nullptr), 0);
}

TEST(BackOffPolicy, TwoKindsInTurnAreLookedAt) {
  BackOffPolicy policy;
  const int programs[] = {0, 1};
  for (int i = 0; i < 200; ++i) EXPECT_EQ(policy.looked(Gain::Perhaps, &programs[i % 2]), 0);
}

TEST(BackOffPolicy, TracesAreNeitherGainNorLoss) {
  BackOffPolicy policy;
  for (int i = 0; i < 200; ++i) EXPECT_EQ(policy.looked(Gain::Unknown, nullptr), 0);
}

TEST(BackOffPolicy, ProgramsTakeTurnsInNoPeriod) {
  BackOffPolicy policy;
  const int program = 0, other = 0;
  until_timed(policy, Gain::Perhaps, &program);
  std::string turns;
  for (int i = 0; i < kTurns; ++i) {
    turns += policy.is_functions_turn(&program) ? 'f' : 'p';
    EXPECT_FALSE(policy.is_functions_turn(&other)) << "it was not timed";
    policy.took(1, 1);
  }
  EXPECT_EQ(turns, "pffpfppffppfpffp");
}

TEST(BackOffCounter, AreLeftOneByOne) {
  BackOffCounter calls;
  EXPECT_FALSE(calls.leaves_this_one());
  calls.are(2);
  EXPECT_TRUE(calls.leaves_this_one());
  EXPECT_TRUE(calls.leaves_this_one());
  EXPECT_FALSE(calls.leaves_this_one());
  calls.are(kTimed);
  EXPECT_FALSE(calls.leaves_this_one());
  EXPECT_TRUE(calls.is_timed());
  EXPECT_EQ(calls.left(), 2U);
}

// ---- functions

// It cannot become a program: how the result's size depends on data is unknown.
at::Tensor without_repeats(at::Tensor x) { return std::get<0>(at::unique_consecutive(x)); }

template <class Function>
void call_often(const Function& f, const at::Tensor& x, int calls = 500) {
  for (int i = 0; i < calls; ++i) f(x);
}

TEST(LeftCalls, AreCountedAndRight) {
  hindcast::reset();
  const auto f = aot_function(without_repeats);
  const at::Tensor x = torch::randn({8});
  for (int i = 0; i < 2000; ++i) ASSERT_TRUE(at::equal(f(x), without_repeats(x)));
  EXPECT_GT(f.stats().left, 200U);
  EXPECT_EQ(f.stats().calls, 2000U);
  EXPECT_EQ(f.stats().eager, 2000U);
  EXPECT_GT(hindcast::stats().left_calls, 200U);
  EXPECT_NE(hindcast::report().find("left calls"), std::string::npos);
}

TEST(LeftCalls, RunTheFunctionOnceEach) {
  auto runs = std::make_shared<int>(0);
  const auto one_op = aot_function([runs](at::Tensor x) { return ++*runs, x + 1; });
  const auto eager = aot_function([runs](at::Tensor x) { return ++*runs, without_repeats(x); });
  const at::Tensor x = torch::randn({8});
  call_often(one_op, x);
  EXPECT_EQ(static_cast<uint64_t>(*runs), one_op.stats().traces + one_op.stats().eager);
  *runs = 0;
  call_often(eager, x);
  EXPECT_EQ(*runs, 500);
}

TEST(LeftCalls, EndWhereGradientsAreWanted) {
  const auto f = aot_function([](at::Tensor x) { return x.requires_grad() ? x.sin().exp() : without_repeats(x); });
  call_often(f, torch::randn({8}));
  ASSERT_GT(f.stats().left, 0U);
  const at::Tensor x = torch::randn({8}).requires_grad_();
  for (int i = 0; i < kMost + 10; ++i) {
    x.mutable_grad() = at::Tensor();
    f(x).sum().backward();
    ASSERT_TRUE(at::allclose(x.grad(), x.cos() * x.sin().exp()));
  }
  EXPECT_GT(f.stats().hits, 0U) << "at most 1,023 of them were unseen";
}

TEST(LeftCalls, AreLookedAtAgainBehindAReset) {
  auto f = aot_function(without_repeats);
  const at::Tensor x = torch::randn({8});
  call_often(f, x, 200);
  const uint64_t left = f.stats().left;
  ASSERT_GT(left, 0U);
  f.reset();
  call_often(f, x, kPatience);
  EXPECT_EQ(f.stats().left, left);
}

// A user's own checkpoint: a program may have to draw the same numbers as a call that was left to the function.
TEST(LeftCalls, DrawNumbersThatProgramsDrawToo) {
  const auto draw = [](at::Tensor x) { return at::dropout(x.requires_grad() ? x * 2 : without_repeats(x) + 1, 0.5, true); };
  const auto f = aot_function(draw);
  call_often(f, torch::ones({64}));
  ASSERT_GT(f.stats().left, 0U);
  const at::Tensor x = torch::ones({64}).requires_grad_();
  for (int i = 0; i < kMost + 10; ++i) f(x).sum().backward();
  ASSERT_GT(f.stats().hits, 0U);
  torch::manual_seed(5);
  const at::Tensor seen = f(x);
  torch::manual_seed(5);
  EXPECT_TRUE(at::equal(seen, draw(x)));
}

TEST(LeftCalls, AreNoneWhereSomebodyWantsEachLookedAt) {
  AotOptions no_back_off, checks, throws;
  no_back_off.back_off = false;
  checks.check_every = 100;
  throws.fallback = false;
  const auto one_op = [](at::Tensor x) { return x + 1; };
  for (const AotOptions& options : {no_back_off, checks, throws}) {
    const auto f = aot_function(one_op, options);
    call_often(f, torch::randn({8}));
    EXPECT_EQ(f.stats().hits, 499U);
    EXPECT_EQ(f.stats().left, 0U);
  }
}

TEST(LeftCalls, ProgramsThatDrawOrAreToGiveEqualBitsAreNotCompared) {
  AotOptions options;
  options.fallback_random = true;
  const auto f = aot_function([](at::Tensor x) { return at::dropout(x, 0.5, true); }, options);
  call_often(f, torch::randn({8}));
  EXPECT_EQ(f.stats().hits, 499U);

  Options deterministic;
  deterministic.deterministic = true;
  const auto guard = hindcast::enable(deterministic);
  const auto g = aot_function([](at::Tensor x) { return x + 1; });
  call_often(g, torch::randn({8}));
  EXPECT_EQ(g.stats().hits, 499U);
}

TEST(LeftCalls, OfAModuleRunItsForward) {
  struct Mask : torch::nn::Module {
    at::Tensor forward(at::Tensor x) { return without_repeats(x) + (is_training() ? 1 : 0); }
  };
  const auto module = std::make_shared<Mask>();
  const auto compiled = aot_module(module);
  const at::Tensor x = torch::randn({8});
  call_often(compiled, x);
  ASSERT_GT(compiled.stats().left, 0U);
  module->eval();
  EXPECT_TRUE(at::equal(compiled(x), without_repeats(x)));
}

}  // namespace
}  // namespace hindcast::tests::back_off_policy_test
