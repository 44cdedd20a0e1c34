// LibTorch's warnings in a backward come on each step, from captures and from hits, as often as with the stock engine.

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/programs.h"

namespace hindcast::tests::warnings_test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Texts = std::vector<std::string>;

constexpr int kSteps = 4;  // a capture and three hits

class Listener final : private c10::WarningHandler {
 public:
  Listener() : here_(this) {}
  Texts texts;

 private:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  c10::WarningUtils::WarningHandlerGuard here_;
};

class WarnAlways {
 public:
  explicit WarnAlways(bool always) : before_(c10::WarningUtils::get_warnAlways()) { c10::WarningUtils::set_warnAlways(always); }
  ~WarnAlways() { c10::WarningUtils::set_warnAlways(before_); }
  WarnAlways(const WarnAlways&) = delete;
  WarnAlways& operator=(const WarnAlways&) = delete;

 private:
  bool before_;
};

/// The warnings of each step.
using Operator = std::function<at::Tensor(const at::Tensor&)>;
std::vector<Texts> warnings_of_steps(const Operator& op) {
  std::vector<Texts> steps;
  for (int step = 0; step < kSteps; ++step) {
    const auto x = leaf({3});
    const auto loss = op(x.sin().exp()).tanh().sum();
    Listener listener;
    loss.backward();
    steps.push_back(listener.texts);
  }
  return steps;
}

/// `stock`: the stock engine's warnings. An operator that warns once per process has to exist once per engine.
void expect_same_warnings(const std::vector<Texts>& stock, const Operator& op) {
  reset();
  const auto guard = enable();
  EXPECT_EQ(warnings_of_steps(op), stock);
  EXPECT_EQ(stats().hits, kSteps - 1u);
}

void expect_same_warnings(const Operator& op, size_t at_each_step) {
  const auto stock = warnings_of_steps(op);
  for (const Texts& texts : stock) EXPECT_THAT(texts, testing::SizeIs(at_each_step));
  expect_same_warnings(stock, op);
}

/// An operator whose formula is `Formula` of its gradient.
template <class Formula>
struct WithFormula : Function<WithFormula<Formula>> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {Formula()(grads[0] * 2)}; }
};

template <class Formula>
Operator with(Formula) {
  return [](const at::Tensor& x) { return WithFormula<Formula>::apply(x); };
}

/// Returns `x`. The operator warns when it runs: of a mask that is not of bools.
at::Tensor warning_operator(const at::Tensor& x) { return at::zeros_like(x).index_put({at::ones({3}, at::kByte)}, x); }

void expect_opaque(const std::string& reason) {
  ASSERT_THAT(stats().opaque_reasons, testing::SizeIs(1));
  EXPECT_THAT(stats().opaque_reasons.begin()->second, testing::HasSubstr(reason));
}

TEST(Warnings, OfAFormulaOfLibTorch) {
  expect_same_warnings([](const at::Tensor& x) { return at::_test_warn_in_autograd(x); }, 1);
  expect_opaque("its formula warns");
}

TEST(Warnings, OfAFormulaThatIsTraceable) {
  expect_same_warnings(with([](const at::Tensor& grad) {
                         TORCH_WARN("first");
                         const auto result = grad.cos();
                         TORCH_WARN("second");
                         return result;
                       }),
                       2);
  expect_opaque("its formula warns");
}

TEST(Warnings, OfAWriteToAView) {
  expect_same_warnings(
      [](const at::Tensor& x) {
        auto y = at::zeros({2, 3}) * x;
        y[0].copy_(at::_test_warn_in_autograd(x));
        return y;
      },
      1);
}

TEST(Warnings, OfAnOperatorThatIsCaptured) {
  expect_same_warnings(with([](const at::Tensor& grad) { return warning_operator(grad); }), 1);
  EXPECT_THAT(stats().opaque_nodes, testing::IsEmpty());
}

TEST(Warnings, OfAnOperatorThatIsMadeOfOthers) {
  const WarnAlways always(true);
  expect_same_warnings(with([](const at::Tensor& grad) { return grad.reshape({3, 1, 1}).numpy_T().reshape({3}); }), 1);
  expect_opaque("its formula warns");
}

TEST(Warnings, OfAFormulaAndOfItsOperatorsComeInTheirOrder) {
  expect_same_warnings(with([](const at::Tensor& grad) {
                         const auto result = warning_operator(grad);
                         TORCH_WARN("of the formula");
                         return warning_operator(result);
                       }),
                       3);
  expect_opaque("its formula warns");
}

TEST(Warnings, OfANodeThatTurnsOutToBeOpaque) {
  expect_same_warnings(with([](const at::Tensor& grad) {
                         const auto result = warning_operator(grad);
                         return grad.masked_select(result == result).clone();
                       }),
                       1);
  expect_opaque("depends on the data");
}

template <class Engine>
Operator warning_once() {
  return with([](const at::Tensor& grad) {
    TORCH_WARN_ONCE("once");
    return grad.cos();
  });
}

TEST(Warnings, OncePerProcess) {
  const WarnAlways always(false);
  const auto stock = warnings_of_steps(warning_once<struct Stock>());
  EXPECT_EQ(stock, (std::vector<Texts>{{"once"}, {}, {}, {}}));
  expect_same_warnings(stock, warning_once<struct Hindcast>());
}

TEST(Warnings, OncePerProcessWhereTheyAreWantedAlways) {
  const WarnAlways always(true);
  expect_same_warnings(warning_once<struct Always>(), 1);
}

TEST(Warnings, OfACaptureThatFails) {
  const auto failing = with([](const at::Tensor& grad) {
    TORCH_WARN("before the error");
    TORCH_CHECK(false, "an error");
    return grad;
  });
  const auto warned = [&] {
    Listener listener;
    EXPECT_THROW(failing(leaf({3}).sin()).exp().sum().backward(), c10::Error);
    return listener.texts;
  };
  const auto stock = warned();
  const auto guard = enable();
  EXPECT_EQ(warned(), stock);
}

}  // namespace
}  // namespace hindcast::tests::warnings_test
