// Options::nan_guard: reports where infinities and NaN in gradients began, and changes nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <future>
#include <limits>
#include <string>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"
#include "tests/support/recording_hooks.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::nan_guard_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr float kInf = std::numeric_limits<float>::infinity();

Options guarded() {
  Options options;
  options.nan_guard = true;
  return options;
}

/// Runs `program` on both engines, with a miss and hits of other sizes. Expects the stock engine's gradients, a count per backward, and
/// these words in each message.
void expect_said(const SeededProgram& program, const std::vector<std::string>& words, Options options = guarded()) {
  hindcast::reset();
  LogCapture logs("");
  constexpr uint64_t kSteps = 5;
  expect_same_grads(program, {1, 1, 2, 3, 3}, options);
  EXPECT_EQ(hindcast::stats().non_finite_backwards, kSteps);
  EXPECT_GE(hindcast::stats().hits, 2U) << hindcast::stats();
  for (const std::string& word : words) EXPECT_EQ(logs.count(word), kSteps) << word << " is not in\n" << logs.text();
}

at::Tensor leaf_of(uint64_t seed, double value = 2) {
  return at::full({static_cast<int64_t>(seed) + 1, 3}, value, at::kFloat).set_requires_grad(true);
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * 2};
  }
};

struct Overflowing : torch::autograd::Function<Overflowing> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list grads) {
    return {grads[0] * kInf};
  }
};

TEST(NanGuard, SaysNothingOfFiniteGradients) {
  hindcast::reset();
  LogCapture logs("");
  expect_same_grads(
      [](uint64_t seed) {
        const auto x = leaf_of(seed);
        x.exp().log().sqrt().sum().backward();
        return std::vector{x.grad()};
      },
      {1, 1, 2, 3}, guarded());
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 0U);
  EXPECT_EQ(logs.text(), "");
}

TEST(NanGuard, NamesADivisionByZeroInAFormula) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed, 4), y = leaf_of(seed, 1);
        {
          const at::NoGradGuard no_grad;
          x[1][2] = 0;
        }
        (x.sqrt().sin() + y).mul(0.5).sum().backward();
        return std::vector{x.grad(), y.grad()};
      },
      {"1 of 2 gradients are not finite, the first at torch::autograd::AccumulateGrad (NodeCall ",
       "they begin in aten::div.Tensor of SqrtBackward0 (NodeCall 6), which was given finite values", "self: Float[", "other: Float[",
       "result: Float["});
}

TEST(NanGuard, NamesALogarithmAtZero) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed, 0);
        x.mul(3).log().sum().backward();
        return std::vector{x.grad()};
      },
      {"they begin in aten::div.Tensor of LogBackward0 (NodeCall 2)", "other: Float["});
}

TEST(NanGuard, NamesAnOverflowInAProduct) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed, 88);
        const auto large = x.exp();  // 1.7e38
        large.mul(100).detach();
        large.mul(1e-37).mul(1e37).mul(10).sum().backward();
        return std::vector{x.grad()};
      },
      {"they begin in aten::mul.Tensor of ExpBackward0 (NodeCall 5), which was given finite values"});
}

TEST(NanGuard, NamesAValueThatTheForwardSaved) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed, 100);
        x.mul(1).exp().mul(1e-3).sum().backward();
        return std::vector{x.grad()};
      },
      {"a value that the forward saved was not finite already: saved_1, read by aten::mul.Tensor of ExpBackward0 (NodeCall 3)",
       "  self: Float[", "  other: Float["});
}

TEST(NanGuard, NamesTheRoot) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed);
        auto root = at::ones_like(x);
        root[0][1] = std::nanf("");
        x.sin().cos().backward(root);
        return std::vector{x.grad()};
      },
      {"the gradient at the root was not finite already: tangents_1, read by aten::"});
}

TEST(NanGuard, NamesTheRootOfALeaf) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed);
        x.backward(at::full_like(x, kInf));
        return std::vector{x.grad()};
      },
      {"the gradient at the root was not finite already: tangents_1"});
}

TEST(NanGuard, NamesAnOpaqueNode) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed);
        Overflowing::apply(x.sin()).mul(2).sum().backward();
        return std::vector{x.grad()};
      },
      {"they begin in the call of ", "Overflowing> (NodeCall 3), which was given finite values", "gradient 0: Float[", "from 2 to 2"});
}

TEST(NanGuard, NamesAHook) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed), y = x.sin();
        y.register_hook([](const at::Tensor& grad) { return grad / 0; });
        y.mul(2).sum().backward();
        return std::vector{x.grad()};
      },
      {"they begin in a tensor hook at SinBackward0 (NodeCall 3), which was given finite values"});
}

TEST(NanGuard, LooksPastHooksAndOpaqueNodes) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed), y = Doubled::apply(x.mul(3));
        y.register_hook([](const at::Tensor& grad) { return grad * 2; });
        (y - y.detach()).sqrt().mul(5).sum().backward();
        return std::vector{x.grad()};
      },
      {"they begin in aten::div.Tensor of SqrtBackward0 (NodeCall 3)"});
}

TEST(NanGuard, AnInfinityThatDoesNotReachALeafIsNotTheCause) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed, 0), mask = at::zeros_like(x);
        mask.select(1, 0).fill_(-kInf);
        const auto softmax = (x + mask).softmax(-1) * at::where(mask == 0, mask, at::full_like(mask, 1));
        (softmax + x.sqrt()).sum().backward();
        return std::vector{x.grad()};
      },
      {"they begin in aten::div.Tensor of SqrtBackward0 "});
}

TEST(NanGuard, NamesResultsOfGrad) {
  expect_said(
      [](uint64_t seed) {
        const auto x = leaf_of(seed, 0), y = x.mul(2), z = y.sqrt();
        return torch::autograd::grad({z.mul(3).sum()}, {y, z});
      },
      {"1 of 2 gradients are not finite, the first at MulBackward1 (NodeCall 4)",
       "they begin in aten::div.Tensor of SqrtBackward0 (NodeCall 3)"});
}

TEST(NanGuard, LooksAtEveryType) {
  for (const auto type : {at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    SCOPED_TRACE(c10::toString(type));
    expect_said(
        [type](uint64_t seed) {
          const auto x = at::zeros({static_cast<int64_t>(seed) + 1}, type).set_requires_grad(true);
          const auto y = x.sqrt().mul(2).sum();
          y.backward(at::ones_like(y));
          return std::vector{x.grad()};
        },
        {"gradients are not finite", "SqrtBackward0 (NodeCall 3)"});
  }
}

TEST(NanGuard, GoesBackBehindAHookThatReturnedSomethingNew) {
  int step = 0;
  hindcast::reset();
  LogCapture logs("");
  const auto run = [&](bool layout) {
    const auto guard = hindcast::enable(guarded());
    const auto x = at::zeros({3, 4}).set_requires_grad(true), y = x.sqrt();
    const auto z = y.sin();
    y.register_hook([layout](const at::Tensor& grad) { return layout ? grad.t().contiguous().t() : grad + 0; });
    (z.sqrt() + y.mul(2)).sum().backward();
    ++step;
  };
  run(false);
  run(true);
  run(true);
  EXPECT_EQ(hindcast::stats().segment_guard_failures, 2U);
  EXPECT_EQ(logs.count("they begin in aten::div.Tensor of SqrtBackward0 (NodeCall 3)"), 3U) << logs.text();
}

TEST(NanGuard, SpeaksWhenABackwardThrows) {
  hindcast::reset();
  LogCapture logs("");
  int calls = 0;
  for (int step = 0; step < 3; ++step) {
    const auto guard = hindcast::enable(guarded());
    const auto x = at::zeros({3}).set_requires_grad(true), w = at::ones({3}).set_requires_grad(true), y = x.mul(2);
    y.register_hook([&](const at::Tensor&) -> at::Tensor {
      ++calls;
      throw std::runtime_error("stop");
    });
    EXPECT_THROW(y.add(w.sub(1).sqrt()).sum().backward(), std::runtime_error);
    EXPECT_TRUE(w.grad().isinf().all().item<bool>());
  }
  EXPECT_EQ(calls, 3) << "a hook ran twice";
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 3U);
  EXPECT_EQ(logs.count("they begin in aten::div.Tensor of SqrtBackward0 "), 3U) << logs.text();
}

TEST(NanGuard, CallsNoHookTwiceAndWritesNothingTwice) {
  expect_said(
      [](uint64_t seed) {
        int calls = 0;
        const auto x = leaf_of(seed, 0);
        x.mutable_grad() = at::ones_like(x);
        x.register_hook([&](const at::Tensor& grad) {
          ++calls;
          return grad;
        });
        x.sqrt().sum().backward();
        return std::vector{x.grad(), at::full({}, calls)};
      },
      {"they begin in aten::div.Tensor of SqrtBackward0 (NodeCall 2)"});
}

TEST(NanGuard, SaysThatWhatItReadWasChanged) {
  hindcast::reset();
  LogCapture logs("");
  for (int step = 0; step < 2; ++step) {
    const auto guard = hindcast::enable(guarded());
    const auto x = at::ones({3}).set_requires_grad(true), zero = at::zeros({3}), y = x.div(zero);
    x.register_hook([zero](const at::Tensor& grad) {
      zero.fill_(1);
      return grad;
    });
    y.sum().backward();
  }
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 2U);
  EXPECT_EQ(logs.count("where they began was not found"), 0U) << "the hook's own result shows it:\n" << logs.text();
  EXPECT_EQ(logs.count("were written to meanwhile"), 2U) << logs.text();
}

TEST(NanGuard, SaysThatNodesRanAsThemselves) {
  Options options = guarded();
  options.limit = 1;
  options.dynamic = Dynamic::Never;
  hindcast::reset();
  LogCapture logs("-compiled_autograd");
  for (const uint64_t seed : {1, 2}) {
    const auto guard = hindcast::enable(options);
    leaf_of(seed, 0).sqrt().sum().backward();
  }
  EXPECT_EQ(logs.count("they begin in SumBackward0 (NodeCall 1) or later: these nodes ran as themselves"), 1U) << logs.text();
}

TEST(NanGuard, SaysItTenTimesAndCountsOn) {
  hindcast::reset();
  LogCapture logs("");
  const auto guard = hindcast::enable(guarded());
  for (int step = 0; step < 15; ++step) {
    const auto x = at::zeros({3}).set_requires_grad(true);
    x.sqrt().sum().backward();
  }
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 15U);
  EXPECT_EQ(logs.count("gradients are not finite"), 10U);
}

TEST(NanGuard, IsSilentWhereItIsOff) {
  hindcast::reset();
  LogCapture logs("");
  const auto guard = hindcast::enable();
  at::zeros({3}).set_requires_grad(true).sqrt().sum().backward();
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 0U);
  EXPECT_EQ(logs.text(), "");
}

TEST(NanGuardThreads, EachSaysItsOwn) {
  hindcast::reset();
  LogCapture logs("");
  const auto run = [](bool root) {
    const auto guard = hindcast::enable(guarded());
    for (int step = 0; step < 5; ++step) {
      const auto x = at::zeros({3}).set_requires_grad(true);
      if (root) {
        x.sin().backward(at::full({3}, kInf));
      } else {
        x.sqrt().sum().backward();
      }
    }
  };
  auto other = std::async(std::launch::async, run, true);
  run(false);
  other.get();
  EXPECT_EQ(hindcast::stats().non_finite_backwards, 10U);
  EXPECT_EQ(logs.count("the gradient at the root was not finite already"), 5U) << logs.text();
  EXPECT_EQ(logs.count("they begin in aten::div.Tensor of SqrtBackward0"), 5U) << logs.text();
}

}  // namespace
}  // namespace hindcast::tests::nan_guard_test
