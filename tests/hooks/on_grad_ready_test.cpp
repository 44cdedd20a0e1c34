// hindcast::on_grad_ready: post-accumulate hooks in C++. They belong to the leaf, so they run with and without hindcast; and
// hindcast::traceable, hooks whose ATen calls may become part of the graph.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

TEST(OnGradReady, SeesTheGradWritten) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    hindcast::on_grad_ready(x, [&](const at::Tensor& param) {
      log.note(param.is_same(x) ? "called with x itself" : "called with another tensor");
      log.show("x.grad", x.grad());
    });
    const auto loss = x.sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(OnGradReady, RunsAsSoonAsTheGradIsWritten) {
  expect_same_steps(3, [](Log& log, int) {
    const auto first = leaf({3, 3}), last = leaf({3, 3});
    hindcast::on_grad_ready(last,
                            [&](const at::Tensor&) { log.note(first.grad().defined() ? "first has its grad" : "first has no grad yet"); });
    first.mm(first).sin().mm(last).sum().backward();
  });
}

TEST(OnGradReady, CallsSeveralInOrderOfRegistration) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    for (int i = 0; i < 4; ++i) {
      hindcast::on_grad_ready(x, [&log, i](const at::Tensor&) { log.note("hook " + std::to_string(i)); });
    }
    x.sin().sum().backward();
  });
}

TEST(OnGradReady, RemovedHandleIsSilentAndOthersStay) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("a"); });
    auto handle = hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("b"); });
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("c"); });
    const auto loss = x.sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    handle.remove();
    handle.remove();
    loss.backward();
  });
}

TEST(OnGradReady, MayRemoveItself) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto handle = std::make_shared<std::optional<hindcast::GradReadyHandle>>();
    handle->emplace(hindcast::on_grad_ready(x, [&log, handle, name = std::string("only once")](const at::Tensor&) {
      (*handle)->remove();
      log.note(name);
    }));
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("every time"); });
    const auto loss = x.sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    handle->reset();
  });
}

TEST(OnGradReady, MayRegisterAnotherForTheNextBackward) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    hindcast::on_grad_ready(x, [&, added = false](const at::Tensor&) mutable {
      log.note("first");
      if (!added) hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("added"); });
      added = true;
    });
    const auto loss = x.sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    log.note("again");
    loss.backward();
  });
}

TEST(OnGradReady, ChainsToTheHookThatWasThere) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    torch::autograd::impl::set_post_acc_grad_hooks(
        x, std::make_unique<LambdaGradReadyHook>([&](const at::Tensor&) { log.note("the one that was there"); }));
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("ours"); });
    x.sin().sum().backward();
  });
}

TEST(OnGradReady, IsNotCalledWithoutAGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), unused = leaf({3});
    hindcast::on_grad_ready(unused, [&](const at::Tensor&) { log.note("unused"); });
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("x"); });
    x.sin().sum().backward();
    log.show("grad", torch::autograd::grad({x.cos().sum()}, {x}));
  });
}

TEST(OnGradReady, MayTakeTheGradAway) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    hindcast::on_grad_ready(x, [&](const at::Tensor& param) {
      log.show("taken", param.grad());
      param.mutable_grad().reset();
    });
    (x * w).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(OnGradReady, StepsAnOptimizerInsideTheBackward) {
  expect_same(
      [](Log& log) {
        std::vector<at::Tensor> weights;
        for (int i = 0; i < 4; ++i) {
          weights.push_back(leaf({4, 4}));
          hindcast::on_grad_ready(weights.back(), [](const at::Tensor& param) {
            param.data().sub_(param.grad(), 0.01);
            param.mutable_grad().reset();
          });
        }
        for (int step = 0; step < 5; ++step) {
          auto x = at::randn({2, 4});
          for (const auto& weight : weights) {
            x = x.mm(weight).tanh();
          }
          x.pow(2).sum().backward();
          log.show("weights", weights);
        }
      },
      Takeover::Hits);
}

TEST(OnGradReady, ExceptionLeavesTheGradsWrittenSoFar) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3, 3}), w = leaf({3, 3});
    hindcast::on_grad_ready(w, [step](const at::Tensor&) {
      if (step != 0) throw std::logic_error("not ready for this");
    });
    log.attempt("backward", [&] { x.sin().mm(w).sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(OnGradReady, ConcernsLeavesOnly) {
  // An intermediate has no .grad to wait for; LibTorch's Python API throws as well.
  const auto y = leaf({3}).sin();
  EXPECT_THROW(hindcast::on_grad_ready(y, [](const at::Tensor&) {}), std::exception);
  EXPECT_THROW(hindcast::on_grad_ready(at::ones({3}), [](const at::Tensor&) {}), std::exception);
  EXPECT_THROW(hindcast::on_grad_ready(at::Tensor(), [](const at::Tensor&) {}), std::exception);
}

TEST(TraceableHook, ComputesWhatTheSameOpaqueHookComputes) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto y = x.mm(w);
    y.register_hook(hindcast::traceable([](at::Tensor grad) { return grad.clamp(-0.5, 0.5) * 2; }));
    w.register_hook(hindcast::traceable([](at::Tensor grad) { return grad / (grad.norm() + 1e-6); }));
    y.sin().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(TraceableHook, StandsBetweenOpaqueOnes) {
  expect_same_steps(4, [](Log& log, int) {
    const auto x = leaf({5});
    const auto y = x.sin();
    y.register_hook([&](at::Tensor grad) { log.show("before", grad); });
    y.register_hook(hindcast::traceable([](at::Tensor grad) { return grad * grad; }));
    y.register_hook([&](at::Tensor grad) { log.show("after", grad); });
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(TraceableHook, FollowsAChangingSize) {
  expect_same_steps(6, [](Log& log, int step) {
    const auto x = leaf({4 - step % 2, 3});
    const auto y = x.sin();
    y.register_hook(hindcast::traceable([](at::Tensor grad) { return grad - grad.mean(0, /*keepdim=*/true); }));
    y.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(TraceableHook, WrongShapeIsRefusedInTheStockWords) {
  expect_same_steps(
      2,
      [](Log& log, int) {
        const auto x = leaf({3, 4});
        const auto y = x.sin();
        y.register_hook(hindcast::traceable([](at::Tensor grad) { return grad.sum(0); }));
        log.attempt("backward", [&] { y.exp().sum().backward(); });
        log.show("x.grad", x.grad());
      },
      Takeover::Some);
}

}  // namespace
}  // namespace hindcast::tests
