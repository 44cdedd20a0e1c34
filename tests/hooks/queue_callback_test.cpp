// Final callbacks: queued from hooks while a backward runs, called once at its end.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

void queue_callback(std::function<void()> callback) { torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback)); }

TEST(QueueCallback, RunsOnceAfterTheLastGrad) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) {
      log.note("hook of y");
      queue_callback([&] { log.show("grads in the callback", {x.grad(), w.grad()}); });
    });
    (y * w).sum().backward();
    log.note("backward is over");
  });
}

TEST(QueueCallback, RunsInTheOrderOfQueueing) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto y = x;
    for (int i = 0; i < 4; ++i) {
      y = y.sin();
      y.register_hook([&log, i](at::Tensor) {
        queue_callback([&log, i] { log.note("callback " + std::to_string(i)); });
        queue_callback([&log, i] { log.note("callback " + std::to_string(i) + ", second"); });
      });
    }
    y.sum().backward();
  });
}

TEST(QueueCallback, MayBeQueuedByACallback) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    x.register_hook([&](at::Tensor) {
      queue_callback([&] {
        log.note("first");
        queue_callback([&] {
          log.note("third");
          queue_callback([&] { log.note("fourth"); });
        });
      });
      queue_callback([&] { log.note("second"); });
    });
    x.sin().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(QueueCallback, FromEveryKindOfHook) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto queue = [&](const char* name) { queue_callback([&log, name] { log.note(name); }); };
    y.register_hook([=](at::Tensor) { queue("register_hook"); });
    y.grad_fn()->add_pre_hook(pre_hook([=](const variable_list& grads) {
      queue("pre hook");
      return grads;
    }));
    y.grad_fn()->add_post_hook(post_hook([=](const variable_list& outputs, const variable_list&) {
      queue("post hook");
      return outputs;
    }));
    hindcast::on_grad_ready(x, [=](const at::Tensor&) { queue("grad ready"); });
    y.sum().backward();
  });
}

TEST(QueueCallback, ThatThrowsEndsTheBackwardWithAllGradsWritten) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3});
    w.register_hook([&, step](at::Tensor) {
      queue_callback([&, step] {
        log.note("first");
        if (step == 1) throw std::runtime_error("the callback's own words");
      });
      queue_callback([&] { log.note("second"); });
    });
    log.attempt("backward", [&] { (x * w).sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(QueueCallback, IsDroppedWhenAHookThrows) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) { queue_callback([&] { log.note("callback"); }); });
    x.register_hook([step](at::Tensor) {
      if (step == 1) throw std::runtime_error("hook");
    });
    log.attempt("backward", [&] { y.sum().backward(); });
  });
}

TEST(QueueCallback, MayCallBackward) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    x.register_hook([&](at::Tensor) {
      queue_callback([&] {
        const at::AutoGradMode grad_mode(true);
        w.exp().sum().backward();
        log.show("w.grad in the callback", w.grad());
      });
    });
    x.sin().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(QueueCallback, OfAnInnerBackwardRunsAtTheEndOfTheInnerOne) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), inner = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) {
      queue_callback([&] { log.note("outer callback"); });
      const at::AutoGradMode grad_mode(true);
      const auto z = inner.exp();
      z.register_hook([&](at::Tensor) { queue_callback([&] { log.note("inner callback"); }); });
      z.sum().backward();
      log.note("inner backward is over");
    });
    y.sum().backward();
  });
}

TEST(QueueCallback, OutsideOfABackwardIsAnError) {
  expect_same_steps(
      2,
      [](Log& log, int) {
        log.attempt("before any backward", [] { queue_callback([] {}); });
        leaf({3}).sin().sum().backward();
        log.attempt("after a backward", [] { queue_callback([] {}); });
      },
      Takeover::Some);
}

TEST(QueueCallback, FromGradWithItsOwnResults) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor) { queue_callback([&] { log.note("callback"); }); });
    log.show("grad", torch::autograd::grad({y.exp().sum()}, {x}));
  });
}

}  // namespace
}  // namespace hindcast::tests
