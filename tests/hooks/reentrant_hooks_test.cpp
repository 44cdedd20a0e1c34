// Hooks that call backward() or grad() themselves. The stock engine runs the inner call; the outer backward then continues.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

TEST(ReentrantHook, CallsBackwardOfAnotherGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), inner = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor grad) {
      const at::AutoGradMode grad_mode(true);
      log.note("inner backward begins");
      const auto z = inner.cos();
      z.register_hook([&](at::Tensor) { log.note("hook of the inner graph"); });
      z.sum().backward();
      log.note("inner backward ends");
      return grad + inner.grad();
    });
    y.exp().sum().backward();
    log.show("grads", {x.grad(), inner.grad()});
  });
}

TEST(ReentrantHook, CallsBackwardThatReachesALeafOfTheOuterGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x * w;
    y.register_hook([&](at::Tensor) {
      const at::AutoGradMode grad_mode(true);
      (w * 100).sum().backward();
      log.show("w.grad in the hook", w.grad());
    });
    y.exp().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(ReentrantHook, CallsGradAndUsesItsResult) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), inner = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor grad) {
      const at::AutoGradMode grad_mode(true);
      return grad * torch::autograd::grad({inner.pow(3).sum()}, {inner})[0];
    });
    y.exp().sum().backward();
    log.show("grads", {x.grad(), inner.grad()});
  });
}

TEST(ReentrantHook, CallsBackwardOfAnEarlierPieceOfItsOwnGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto z = y.exp();
    z.register_hook([&](at::Tensor) {
      log.note("hook of z");
      y.backward(at::ones({3}), /*retain_graph=*/true);
    });
    z.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(ReentrantHook, ConsumesTheNodesThatTheOuterBackwardStillNeeds) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto z = y.exp();
    z.register_hook([&, step](at::Tensor) {
      if (step % 2 == 1) y.backward(at::ones({3}));
    });
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(ReentrantHook, ThatThrowsInTheInnerBackwardIsCaughtInTheHook) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), inner = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) {
      const at::AutoGradMode grad_mode(true);
      const auto z = inner.cos();
      z.register_hook([](at::Tensor) { throw std::runtime_error("inner failure"); });
      log.attempt("inner", [&] { z.sum().backward(); });
    });
    y.exp().sum().backward();
    log.show("grads", {x.grad(), inner.grad()});
  });
}

TEST(ReentrantHook, ThatThrowsThroughBothBackwards) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3}), inner = leaf({3});
    const auto y = x.sin();
    y.register_hook([&, step](at::Tensor) {
      const at::AutoGradMode grad_mode(true);
      const auto z = inner.cos();
      z.register_hook([step](at::Tensor) {
        if (step % 2 == 1) throw std::runtime_error("inner failure");
      });
      z.sum().backward();
    });
    log.attempt("outer", [&] { (y.exp() * w).sum().backward(); });
    log.show("grads", {x.grad(), w.grad(), inner.grad()});
  });
}

at::Tensor nested(Log& log, const at::Tensor& x, int depth) {
  const auto y = x * depth;
  y.register_hook([&log, x, depth](at::Tensor) {
    const at::AutoGradMode grad_mode(true);
    log.note("depth " + std::to_string(depth));
    if (depth > 1) {
      nested(log, x, depth - 1).sum().backward();
    }
  });
  return y;
}

// Beyond 60 levels the stock engine continues on another thread.
class NestingDepth : public testing::TestWithParam<int> {};

TEST_P(NestingDepth, OfHooksThatCallBackward) {
  expect_same_steps(2, [depth = GetParam()](Log& log, int) {
    const auto x = counting_leaf({3});
    nested(log, x, depth).sum().backward();
    log.show("x.grad", x.grad());
  });
}

INSTANTIATE_TEST_SUITE_P(ReentrantHook, NestingDepth, testing::Values(2, 5, 70));

TEST(ReentrantHook, PostHookAndGradReadyHookCallBackwardToo) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), a = leaf({2}), b = leaf({2});
    const auto y = x.sin();
    y.grad_fn()->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list&) {
      const at::AutoGradMode grad_mode(true);
      a.exp().sum().backward();
      return outputs;
    }));
    hindcast::on_grad_ready(x, [&](const at::Tensor&) {
      const at::AutoGradMode grad_mode(true);
      b.exp().sum().backward();
      log.show("grads in the hook", {x.grad(), a.grad(), b.grad()});
    });
    y.sum().backward();
  });
}

TEST(ReentrantHook, BuildsAGraphWithCreateGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), inner = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) {
      const at::AutoGradMode grad_mode(true);
      const auto first = torch::autograd::grad({inner.pow(3).sum()}, {inner}, {}, {}, /*create_graph=*/true)[0];
      first.sum().backward();
    });
    y.sum().backward();
    log.show("grads", {x.grad(), inner.grad()});
  });
}

}  // namespace
}  // namespace hindcast::tests
