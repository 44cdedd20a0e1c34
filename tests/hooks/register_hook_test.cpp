// Tensor::register_hook, on leaves and on intermediates: both engines call the same hooks, in the same order, with the same gradients, and
// refuse the same results with the same errors.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>

#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

TEST(RegisterHook, ReadsTheGradientOfAnIntermediate) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor grad) { log.show("grad of y", grad); });
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, ReadsTheGradientOfALeaf) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4});
    x.register_hook([&](at::Tensor grad) {
      log.show("grad of x", grad);
      log.note(x.grad().defined() ? ".grad is there" : ".grad is not there yet");
    });
    (x * x).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, ReplacesTheGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 3}), w = leaf({3, 2});
    const auto y = x.mm(w);
    y.register_hook([](at::Tensor grad) { return grad * 10; });
    w.register_hook([](at::Tensor grad) { return grad.clamp(-1, 1); });
    y.tanh().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(RegisterHook, CallsManyOnOneTensorInOrderOfRegistration) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x * 3;
    for (int i = 1; i <= 5; ++i) {
      y.register_hook([&log, i](at::Tensor grad) {
        log.show("hook " + std::to_string(i), grad);
        return grad + i;
      });
    }
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, UndefinedResultLeavesTheGradientAlone) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.cos();
    y.register_hook([](at::Tensor) { return at::Tensor(); });
    x.register_hook([](at::Tensor) { return at::Tensor(); });
    y.pow(2).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, SeesUndefinedGradientsOfUnusedOutputs) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3, 4});
    const auto rows = x.unbind(0);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].register_hook([&log, i](at::Tensor grad) { log.show("row " + std::to_string(i), grad); });
    }
    (rows[0].sum() + rows[2].exp().sum()).backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, MayReturnATransposedGradient) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3, 3});
    const auto y = x.sin();
    y.register_hook([step](at::Tensor grad) { return step % 2 == 0 ? grad : grad.t(); });
    y.mm(y).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, MayReturnAnExpandedGradient) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3, 3});
    const auto y = x * 2;
    y.register_hook([step](at::Tensor grad) { return step % 2 == 0 ? grad : grad.select(0, 0).expand({3, 3}); });
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

// LibTorch refuses each of these results, with an error that names the hook.
struct Refused {
  const char* name;
  at::Tensor (*make)(const at::Tensor&);
};

void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class RefusedResult : public testing::TestWithParam<Refused> {};

TEST_P(RefusedResult, RaisesTheSameErrorOnAnIntermediateAndOnALeaf) {
  expect_same_steps(4, [make = GetParam().make](Log& log, int step) {
    const auto x = leaf({2, 3}), w = leaf({2, 3});
    const auto y = x * w;
    const bool bad = step % 2 == 1;
    y.register_hook([=](at::Tensor grad) { return bad && step == 1 ? make(grad) : grad; });
    x.register_hook([=](at::Tensor grad) { return bad && step == 3 ? make(grad) : grad; });
    log.attempt("backward", [&] { y.exp().sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

INSTANTIATE_TEST_SUITE_P(RegisterHook, RefusedResult,
                         testing::Values(Refused{"WrongShape",
                                                 [](const at::Tensor& grad) {
                                                   return grad.new_zeros({3, 3});
                                                 }},
                                         Refused{"WrongRank", [](const at::Tensor& grad) { return grad.reshape({-1}); }},
                                         Refused{"WrongDtype", [](const at::Tensor& grad) { return grad.to(at::kDouble); }},
                                         Refused{"MetaDevice", [](const at::Tensor& grad) { return grad.to(at::kMeta); }}),
                         [](const auto& info) { return info.param.name; });

TEST(RegisterHook, DefinedResultForAnUndefinedGradientIsRefused) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({2, 4});
    const auto rows = x.unbind(0);
    rows[1].register_hook([step](at::Tensor grad) { return step == 2 ? at::ones({4}) : grad; });
    log.attempt("backward", [&] { rows[0].sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, ExceptionPassesThroughWithItsOwnType) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin();
    y.register_hook([step](at::Tensor) {
      if (step == 1) throw std::out_of_range("the hook's own words");
    });
    log.attempt("backward", [&] { (y * w).sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(RegisterHook, RemovedHookIsSilent) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto first = y.register_hook([&](at::Tensor) { log.note("first"); });
    y.register_hook([&](at::Tensor) { log.note("second"); });
    const auto loss = y.sum();
    loss.backward({}, /*retain_graph=*/true);
    y.remove_hook(first);
    loss.backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, RemovingAnUnknownHookIsAnError) {
  expect_same_steps(2, [](Log& log, int) {
    const auto x = leaf({3});
    x.register_hook([&](at::Tensor) { log.note("called"); });
    log.attempt("remove 5", [&] { x.remove_hook(5); });
    x.sum().backward();
  });
}

TEST(RegisterHook, RegistersOnALaterNodeDuringBackward) {
  expect_same_steps(
      3,
      [](Log& log, int step) {
        const auto x = leaf({3});
        const auto y = x.sin();
        const auto z = y.cos();
        z.register_hook([&, step](at::Tensor) {
          if (step == 0) return;
          y.register_hook([&](at::Tensor grad) {
            log.show("late hook", grad);
            return grad * 2;
          });
        });
        z.sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);  // nodes after one with a new hook run as themselves
}

TEST(RegisterHook, RegistersOnALaterLeafDuringBackward) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto x = leaf({3});
        const auto y = x.sin();
        y.register_hook([&](at::Tensor) {
          x.register_hook([&](at::Tensor grad) {
            log.show("late hook of the leaf", grad);
            return -grad;
          });
        });
        y.sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);  // nodes after one with a new hook run as themselves
}

TEST(RegisterHook, RegistersOnTheSameTensorDuringBackward) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    // The captured string keeps the running lambda on the heap while the list of hooks grows.
    y.register_hook([&, name = std::string("a hook that registers another")](at::Tensor) {
      log.note(name);
      y.register_hook([&](at::Tensor) { log.note("the other"); });
    });
    const auto loss = y.sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, RegistersOnANodeThatHasRunAlready) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto z = y.cos();
    y.register_hook([&](at::Tensor) { z.register_hook([&](at::Tensor) { log.note("hook of z"); }); });
    const auto loss = z.sum();
    loss.backward({}, /*retain_graph=*/true);
    log.note("again");
    loss.backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, RemovesTheHookOfALaterNodeDuringBackward) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto z = y.cos();
    const auto hook = y.register_hook([&](at::Tensor grad) {
      log.note("hook of y");
      return grad * 3;
    });
    z.register_hook([&, step, hook](at::Tensor) {
      if (step == 1) y.remove_hook(hook);
    });
    z.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, OnATensorChangedInPlaceStaysWithTheOldGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto y = x * 2;
    y.register_hook([&](at::Tensor grad) { log.show("before mul_", grad); });
    y.mul_(5);
    y.register_hook([&](at::Tensor grad) { log.show("after mul_", grad); });
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, OnTheRootSeesTheRootGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 2});
    const auto y = x.exp();
    y.register_hook([&](at::Tensor grad) {
      log.show("root", grad);
      return grad * 2;
    });
    y.backward(at::full({2, 2}, 0.5));
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, OnALeafThatIsItselfTheRoot) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2});
    x.register_hook([&](at::Tensor grad) { return grad + 1; });
    x.backward(at::ones({2}));
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, KeepsTheGradientItSawAliveAndUnchanged) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({8});
    const auto y = x.sin();
    at::Tensor kept_y, kept_x;
    y.register_hook([&](at::Tensor grad) { kept_y = grad; });
    x.register_hook([&](at::Tensor grad) { kept_x = grad; });
    const auto loss = (y * y).sum();
    loss.backward({}, /*retain_graph=*/true);
    const auto first_y = kept_y, first_x = kept_x;
    loss.backward();
    log.show("kept from the first backward", {first_y, first_x});
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, InPlaceEditOfTheGradientIsSeenDownstream) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4});
    const auto y = x.sin();
    y.register_hook([](at::Tensor grad) { grad.mul_(3); });
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RegisterHook, WarningsOfAHookReachTheHandler) {
  struct Recorder : c10::WarningHandler {
    explicit Recorder(Log& log) : log(log) {}
    void process(const c10::Warning& warning) override { log.note("warning: " + warning.msg()); }
    Log& log;
  };
  expect_same_steps(3, [](Log& log, int) {
    Recorder recorder(log);
    const c10::WarningUtils::WarningHandlerGuard guard(&recorder);
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) {
      TORCH_WARN("a warning of the hook of y");
      log.note("the hook goes on");
    });
    y.sum().backward();
    log.note("backward is over");
  });
}

TEST(RegisterHook, RunsWithGradModeOff) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor grad) {
      log.note(at::GradMode::is_enabled() ? "grad mode on" : "grad mode off");
      log.show("a product made in the hook", grad * x);
    });
    y.sum().backward();
    log.note(at::GradMode::is_enabled() ? "grad mode on after" : "grad mode off after");
  });
}

}  // namespace
}  // namespace hindcast::tests
