// Modes and global settings around a forward or a backward: autocast, deterministic algorithms, random numbers,
// double backward, anomaly mode, inference mode.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/torch.h>

#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

class Autocast {
 public:
  explicit Autocast(bool enabled = true) : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool before_;
};

at::Tensor linear_network(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  return at::linear(at::linear(x, weights[0]).relu(), weights[1]).to(at::kFloat).pow(2).sum();
}

TEST(Autocast, AroundTheForwardOnly) {
  expect_same_steps(4, [](Log& log, int) {
    const std::vector<at::Tensor> weights{leaf({5, 4}), leaf({2, 5})};
    at::Tensor loss;
    {
      const Autocast autocast;
      loss = linear_network(at::randn({3, 4}), weights);
    }
    loss.backward();
    log.show("grads", {weights[0].grad(), weights[1].grad()});
  });
}

TEST(Autocast, AroundTheBackwardOnly) {
  expect_same_steps(4, [](Log& log, int) {
    const std::vector<at::Tensor> weights{leaf({5, 4}), leaf({2, 5})};
    const auto loss = linear_network(at::randn({3, 4}), weights);
    const Autocast autocast;
    loss.backward();
    log.show("grads", {weights[0].grad(), weights[1].grad()});
  });
}

TEST(Autocast, SwitchesOnAndOffBetweenSteps) {
  expect_same_steps(8, [](Log& log, int step) {
    const std::vector<at::Tensor> weights{leaf({5, 4}), leaf({2, 5})};
    at::Tensor loss;
    {
      const Autocast autocast(step % 2 == 1);
      loss = linear_network(at::randn({3, 4}), weights);
    }
    const Autocast autocast(step % 4 >= 2);
    loss.backward();
    log.show("grads", {weights[0].grad(), weights[1].grad()});
  });
}

TEST(Autocast, IsVisibleInsideAHook) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) { log.note(at::autocast::is_autocast_enabled(at::kCPU) ? "autocast" : "no autocast"); });
    const Autocast autocast(step % 2 == 1);
    y.sum().backward();
  });
}

TEST(Deterministic, AlgorithmsAreUsedInTheBackward) {
  expect_same_steps(4, [](Log& log, int step) {
    at::globalContext().setDeterministicAlgorithms(step % 2 == 1, /*warn_only=*/false);
    const auto x = leaf({6}), w = leaf({3, 2});
    const auto i = at::tensor({0, 0, 5, 2});
    log.attempt("backward", [&] { (x.index({i}).sum() + at::embedding(w, at::tensor({2, 2, 0})).exp().sum()).backward(); });
    log.show("grads", {x.grad(), w.grad()});
    at::globalContext().setDeterministicAlgorithms(false, false);
  });
}

TEST(Deterministic, RefusesWithTheStockText) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([](at::Tensor) { at::globalContext().alertNotDeterministic("what the hook does"); });
    const auto loss = y.sum();
    at::globalContext().setDeterministicAlgorithms(step % 2 == 1, /*warn_only=*/false);
    log.attempt("backward", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
    at::globalContext().setDeterministicAlgorithms(false, false);
  });
}

TEST(RandomNumbers, BackwardDrawsNone) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({8, 8});
    const auto loss = at::dropout(x.sin(), 0.5, /*train=*/true).sum();
    const auto before = at::detail::getDefaultCPUGenerator().get_state();
    loss.backward();
    const auto after = at::detail::getDefaultCPUGenerator().get_state();
    log.note(at::equal(before, after) ? "state unchanged" : "state changed");
    log.show("next numbers", at::randn({4}));
    log.show("x.grad", x.grad());
  });
}

TEST(RandomNumbers, DrawnInAHookAreThoseOfTheStream) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({8});
    const auto y = x.sin();
    y.register_hook([](at::Tensor grad) { return grad + at::randn({8}); });
    x.register_hook([](at::Tensor grad) { return at::dropout(grad, 0.5, true); });
    y.sum().backward();
    log.show("x.grad", x.grad());
    log.show("next numbers", at::randn({4}));
  });
}

TEST(DoubleBackward, GradientPenalty) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({4, 3}), w = leaf({3, 5}), v = leaf({5, 1});
    const auto out = x.mm(w).tanh().mm(v);
    const auto slope = torch::autograd::grad({out.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    (out.pow(2).mean() + (slope.norm(2, 1) - 1).pow(2).mean()).backward();
    log.show("grads", {x.grad(), w.grad(), v.grad()});
  });
}

TEST(DoubleBackward, ThirdDerivative) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto y = x.pow(4).sin();
    for (int i = 0; i < 2; ++i) {
      y = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
      log.show("derivative", y);
    }
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(DoubleBackward, CreateGraphWithHooks) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor grad) {
      log.show("hook", grad);
      return grad * 2;
    });
    const auto slope = torch::autograd::grad({y.exp().sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
    slope.pow(2).sum().backward();
    log.show("x.grad", x.grad());
  });
}

/// Anomaly mode prints stack traces as warnings; this keeps them out of the output and the log.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

TEST(AnomalyMode, NamesTheNodeThatMadeNan) {
  expect_same_steps(
      2,
      [](Log& log, int) {
        Silence silence;
        const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
        const torch::autograd::DetectAnomalyGuard anomaly;
        const auto x = at::zeros({3}).set_requires_grad(true);
        log.attempt("backward", [&] { (x.sqrt() * 0).sum().backward(); });
        log.show("x.grad", x.grad());
      },
      Takeover::Any);
}

TEST(AnomalyMode, WithoutTheCheckForNan) {
  expect_same_steps(
      2,
      [](Log& log, int) {
        Silence silence;
        const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
        const torch::autograd::DetectAnomalyGuard anomaly(/*check_nan=*/false);
        const auto x = at::zeros({3}).set_requires_grad(true);
        log.attempt("backward", [&] { (x.sqrt() * 0).sum().backward(); });
        log.show("x.grad", x.grad());
      },
      Takeover::Any);
}

TEST(AnomalyMode, SwitchedOnForOneStep) {
  expect_same_steps(4, [](Log& log, int step) {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    const auto x = at::zeros({3}).set_requires_grad(true);
    const auto loss = (x.sqrt() * 0).sum();
    torch::autograd::AnomalyMode::set_enabled(step == 2);
    log.attempt("backward", [&] { loss.backward(); });
    torch::autograd::AnomalyMode::set_enabled(false);
    log.show("x.grad", x.grad());
  });
}

TEST(GradMode, OffAroundTheBackwardChangesNothing) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3});
    const auto loss = x.sin().sum();
    const at::AutoGradMode grad_mode(step % 2 == 0);
    loss.backward();
    log.show("x.grad", x.grad());
    log.note(at::GradMode::is_enabled() ? "on" : "off");
  });
}

TEST(InferenceMode, InputsOfTheForward) {
  expect_same_steps(3, [](Log& log, int) {
    at::Tensor input;
    {
      const c10::InferenceMode inference;
      input = at::randn({3});
    }
    const auto x = leaf({3});
    log.attempt("saved for backward", [&] { (x * input).sum().backward(); });
    (x + input).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(InferenceMode, AroundTheBackward) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto x = leaf({3});
        const auto loss = x.sin().sum();
        const c10::InferenceMode inference;
        log.attempt("backward", [&] { loss.backward(); });
        log.note(x.grad().defined() && x.grad().is_inference() ? "an inference tensor" : "a normal tensor");
      },
      Takeover::Any);
}

TEST(ForwardMode, DualTensorsInTheGraph) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto level = torch::autograd::forward_ad::enter_dual_level();
        {
          const auto x = leaf({3});
          const auto dual = at::_make_dual(x, at::ones({3}), static_cast<int64_t>(level));
          log.attempt("backward", [&] { dual.sin().sum().backward(); });
          log.show("x.grad", x.grad());
        }
        torch::autograd::forward_ad::exit_dual_level(level);
      },
      Takeover::Any);
}

TEST(DefaultDtype, ChangesBetweenSteps) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3}, at::kFloat);
    const auto loss = (x.sin() * 2).mean();
    at::set_default_dtype(caffe2::TypeMeta::fromScalarType(step % 2 == 1 ? at::kDouble : at::kFloat));
    loss.backward();
    at::set_default_dtype(caffe2::TypeMeta::fromScalarType(at::kFloat));
    log.show("x.grad", x.grad());
  });
}

}  // namespace
}  // namespace hindcast::tests
