// Why a backward was captured again: the message names exactly what changed. One test per message; those of new structures and of sizes
// that become dynamic are in tests/examples (structures_test, varying_sizes_test).

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "hindcast/hindcast.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class MissReason : public testing::Test {
 protected:
  void SetUp() override { hindcast::reset(); }

  static at::Tensor leaf() { return at::ones({3}).set_requires_grad(true); }

  /// The log of `second` after `first`. Expects stats() and report() to agree with it.
  static std::string reason(const std::function<void()>& first, const std::function<void()>& second, const std::string& kind,
                            const Options& options = {}) {
    const auto guard = hindcast::enable(options);
    first();
    const auto before = hindcast::stats().misses_by_reason[kind];
    LogCapture logs("recompiles");
    second();
    EXPECT_EQ(hindcast::stats().misses_by_reason[kind], before + 1) << hindcast::report();
    const std::string text = logs.text(), mark = "[hindcast/recompiles] ";
    const std::string sentence = text.substr(0, text.find('\n')).substr(std::min(mark.size(), text.size()));
    EXPECT_THAT(hindcast::report(), HasSubstr(sentence));
    return sentence;
  }
  static std::string reason_of_scalars(double first, double second, const Options& options = {}) {
    const auto backward = [](double factor) { return [factor] { leaf().sin().mul(at::Scalar(factor)).sum().backward(); }; };
    return reason(backward(first), backward(second), "ChangedScalar", options);
  }
};

TEST_F(MissReason, AScalarIsNamedWithBothValues) {
  EXPECT_EQ(reason_of_scalars(0.5, 0.25),
            "Cache miss due to changed scalar: MulBackward1 (NodeCall 2): saved scalar other 0.5 -> 0.25, now lifted");
}

TEST_F(MissReason, AScalarThatIsLiftedDoesNotMissAgain) {
  const auto guard = hindcast::enable();
  for (const double factor : {0.5, 0.25, 0.125, -3.0, 0.5}) leaf().mul(at::Scalar(factor)).sum().backward();
  EXPECT_EQ(hindcast::stats().misses, 2U);
  EXPECT_EQ(hindcast::stats().hits, 3U);
}

TEST_F(MissReason, AScalarThatMayNotBeDynamicIsNotLifted) {
  Options options;
  options.dynamic = Dynamic::Never;
  EXPECT_EQ(reason_of_scalars(0.5, 0.25, options),
            "Cache miss due to changed scalar: MulBackward1 (NodeCall 2): saved scalar other 0.5 -> 0.25");
}

TEST_F(MissReason, AnIntegerScalarStaysStatic) {
  const auto backward = [](int64_t exponent) { return [exponent] { leaf().pow(at::Scalar(exponent)).sum().backward(); }; };
  EXPECT_EQ(reason(backward(2), backward(3), "ChangedScalar"),
            "Cache miss due to changed scalar: PowBackward0 (NodeCall 2): saved scalar exponent 2 -> 3");
}

TEST_F(MissReason, ASizeIsMarkedAsDynamic) {
  const auto backward = [](int64_t batch) {
    return [batch] { at::ones({batch, 4}).mm(at::ones({4, 2}).set_requires_grad(true)).backward(at::ones({batch, 2})); };
  };
  EXPECT_EQ(reason(backward(3), backward(5), "ChangedShapes"),
            "Cache miss due to changed shapes: marking size idx 0 of torch::autograd::GraphRoot (NodeCall 0) as dynamic");
}

TEST_F(MissReason, ASizeThatMayNotBeDynamicHasBothValues) {
  const auto backward = [](int64_t n) { return [n] { at::ones({n}).set_requires_grad(true).sin().sum().backward(); }; };
  Options options;
  options.dynamic = Dynamic::Never;
  EXPECT_EQ(reason(backward(3), backward(5), "ChangedShapes", options),
            "Cache miss due to changed shapes: size idx 0 of SumBackward0 (NodeCall 1) 3 -> 5, kept static");
}

TEST_F(MissReason, ASavedTensorOfAnotherDtype) {
  const auto backward = [](at::ScalarType dtype) { return [dtype] { leaf().index_select(0, at::arange(2, dtype)).sum().backward(); }; };
  EXPECT_EQ(reason(backward(at::kLong), backward(at::kInt), "ChangedTensor"),
            "Cache miss due to changed tensor: IndexSelectBackward0 (NodeCall 2): index dtype Long -> Int");
}

TEST_F(MissReason, ASavedTensorOfAnotherLayout) {
  const auto backward = [](const at::Tensor& factor) {
    return [factor] { (at::ones({3, 4}).set_requires_grad(true) * factor).sum().backward(); };
  };
  EXPECT_EQ(reason(backward(at::ones({3, 4})), backward(at::ones({4, 3}).t()), "ChangedTensor"),
            "Cache miss due to changed tensor: MulBackward0 (NodeCall 2): other layout contiguous -> permuted");
}

TEST_F(MissReason, ARootGradientOfAnotherLayout) {
  const auto backward = [](const at::Tensor& gradient) {
    return [gradient] { at::ones({3, 4}).set_requires_grad(true).sin().backward(gradient); };
  };
  EXPECT_EQ(reason(backward(at::ones({3, 4})), backward(at::ones({4, 3}).t()), "ChangedTensor"),
            "Cache miss due to changed tensor: torch::autograd::GraphRoot (NodeCall 0): root gradient layout contiguous -> "
            "permuted");
}

// The dtype of what flows through a node belongs to its structure: the message names the first node that has it.
TEST_F(MissReason, AnotherDtypeOfTheWholeModel) {
  const auto backward = [](at::ScalarType dtype) {
    return [dtype] { at::ones({3}, dtype).set_requires_grad(true).sin().sum().backward(); };
  };
  EXPECT_THAT(reason(backward(at::kFloat), backward(at::kDouble), "NewNode"),
              MatchesRegex("Cache miss due to new autograd node: SumBackward0 \\(NodeCall 1\\) with key size [0-9]+, previous "
                           "key sizes=\\[[0-9]+\\]"));
}

TEST_F(MissReason, AHookThatIsNew) {
  const auto backward = [](bool hook) {
    return [hook] {
      const auto y = leaf().sin();
      if (hook) y.register_hook([](const at::Tensor&) {});
      y.exp().sum().backward();
    };
  };
  EXPECT_THAT(reason(backward(false), backward(true), "NewNode"),
              MatchesRegex("Cache miss due to new autograd node: SinBackward0 \\(NodeCall 3\\) with key size [0-9]+, previous "
                           "key sizes=\\[[0-9]+\\]"));
}

TEST_F(MissReason, ASettingThatChangedIsTheRoots) {
  const auto backward = [](bool autocast) {
    return [autocast] {
      const auto loss = leaf().sin().sum();
      at::autocast::set_autocast_enabled(at::kCPU, autocast);
      loss.backward();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    };
  };
  EXPECT_THAT(reason(backward(false), backward(true), "NewNode"),
              MatchesRegex("Cache miss due to new autograd node: torch::autograd::GraphRoot \\(NodeCall 0\\) with key size "
                           "[0-9]+, previous key sizes=\\[[0-9]+\\]"));
}

TEST_F(MissReason, AHookThatReturnsAnotherLayout) {
  const auto backward = [](bool transposed) {
    return [transposed] {
      const auto y = at::ones({3, 3}).set_requires_grad(true).sin();
      y.register_hook([transposed](const at::Tensor& grad) { return transposed ? grad.contiguous().t() : grad.contiguous(); });
      y.exp().sum().backward();
    };
  };
  const auto guard = hindcast::enable();
  backward(false)();
  LogCapture logs("recompiles");
  backward(true)();
  EXPECT_EQ(logs.text(),
            "[hindcast/recompiles] Cache miss due to failed guard: SinBackward0 (NodeCall 3): the results of a hook or an "
            "opaque node are not those of the capture\n");
  EXPECT_EQ(hindcast::stats().misses_by_reason.count("FailedGuard"), 1U);
}

TEST_F(MissReason, TheLimit) {
  const auto backward = [](int64_t n) { return [n] { at::ones({n}).set_requires_grad(true).sin().sum().backward(); }; };
  Options options;
  options.dynamic = Dynamic::Never;
  options.limit = 1;
  EXPECT_EQ(reason(backward(3), backward(5), "LimitReached", options),
            "Cache miss due to limit reached: SumBackward0 (NodeCall 1) would need one more than the 1 variants that "
            "Options::limit allows; from now on a backward that none of them fits is not captured");
}

TEST_F(MissReason, TheLimitIsAWarningWithoutAnyChannel) {
  Options options;
  options.dynamic = Dynamic::Never;
  options.limit = 1;
  const auto guard = hindcast::enable(options);
  LogCapture logs("");
  for (const int64_t n : {3, 5}) at::ones({n}).set_requires_grad(true).sin().sum().backward();
  EXPECT_EQ(logs.count("[hindcast/compiled_autograd] warning: Cache miss due to limit reached"), 1U) << logs.text();
}

}  // namespace
}  // namespace hindcast::tests
