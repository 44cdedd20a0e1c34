// Wrong use of a graph: both engines throw the same text, after the same partial effects.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

TEST(GraphUsedTwice, IsAnErrorWithoutRetainGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = x.sin().sum();
    loss.backward();
    log.attempt("second backward", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(GraphUsedTwice, WorksWithRetainGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = x.sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    log.attempt("fourth backward", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(GraphUsedTwice, WorksWhereNothingIsSaved) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = (x + x.view({3})).sum();
    loss.backward();
    log.attempt("second backward", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(GraphUsedTwice, StopsAtTheFirstReleasedNode) {
  expect_same_steps(3, [](Log& log, int) {
    // The second graph has nodes of its own before the released node, and leaves beside it.
    const auto x = leaf({3}), w = leaf({3}), early = leaf({3});
    const auto y = x.sin();
    y.sum().backward();
    log.attempt("graph with a released piece", [&] { (y * w + early).sum().backward(); });
    log.show("grads", {x.grad(), w.grad(), early.grad()});
  });
}

TEST(GraphUsedTwice, AfterGradOfOnlyAPart) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto loss = y.exp().sum();
    log.show("grad of y", torch::autograd::grad({loss}, {y}));
    log.attempt("the rest of the graph", [&] { y.sum().backward(); });
    log.attempt("the whole graph", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(GraphUsedTwice, WithHooksThatRunBeforeTheError) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin();
    y.sum().backward();
    const auto z = y * w;
    z.register_hook([&](at::Tensor grad) { log.show("hook of z", grad); });
    y.register_hook([&](at::Tensor grad) { log.show("hook of y", grad); });
    w.register_hook([&](at::Tensor grad) { log.show("hook of w", grad); });
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(SavedTensor, ChangedInPlaceIsAnErrorThatNamesTheTensor) {
  expect_same_steps(5, [](Log& log, int step) {
    const auto x = leaf({2, 3});
    auto y = x.exp();
    const auto z = y.sin();
    if (step % 2 == 0) y.mul_(2);
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(SavedTensor, InputChangedInPlaceIsAnError) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto w = leaf({3});
    auto x = at::randn({3});
    const auto y = w * x;
    if (step == 2) x.add_(1);
    log.attempt("backward", [&] { y.sum().backward(); });
    log.show("w.grad", w.grad());
  });
}

TEST(SavedTensor, LeafChangedUnderNoGradIsAnError) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto w = leaf({3}), x = leaf({3});
    const auto loss = (w * x).sum();
    if (step % 2 == 1) {
      const at::NoGradGuard no_grad;
      w.mul_(2);
    }
    log.attempt("backward", [&] { loss.backward(); });
    log.show("grads", {w.grad(), x.grad()});
  });
}

TEST(SavedTensor, ChangedThroughDataIsNoticedByNobody) {
  expect_same_steps(3, [](Log& log, int) {
    const auto w = leaf({3}), x = leaf({3});
    const auto loss = (w * x).sum();
    w.data().mul_(2);
    loss.backward();
    log.show("grads", {w.grad(), x.grad()});
  });
}

TEST(SavedTensor, ChangedByAHookDuringTheBackward) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto w = leaf({3}), x = leaf({3});
    const auto y = w * x;
    const auto z = y.sin();
    z.register_hook([&, step](at::Tensor) {
      if (step % 2 == 1) w.mul_(2);
    });
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("grads", {w.grad(), x.grad()});
  });
}

TEST(Root, WithoutGradientMustBeAScalar) {
  expect_same_steps(2, [](Log& log, int) {
    const auto y = leaf({3}).sin();
    log.attempt("non-scalar", [&] { y.backward(); });
    log.attempt("non-scalar grad", [&] { torch::autograd::grad({y}, {y}); });
    log.attempt("one element", [&] { leaf({1, 1}).sin().backward(); });
  });
}

TEST(Root, MustRequireGrad) {
  expect_same_steps(
      2,
      [](Log& log, int) {
        log.attempt("no grad", [&] { at::ones({}).backward(); });
        log.attempt("detached", [&] { leaf({3}).sin().detach().sum().backward(); });
        log.attempt("undefined", [&] { torch::autograd::backward({at::Tensor()}); });
        log.attempt("integers", [&] { at::ones({}, at::kLong).backward(); });
      },
      Takeover::Any);
}

struct RootGradient {
  const char* name;
  at::Tensor (*make)();
};

void PrintTo(const RootGradient& gradient, std::ostream* out) { *out << gradient.name; }

class RootGradients : public testing::TestWithParam<RootGradient> {};

TEST_P(RootGradients, AreTakenOrRefusedAlike) {
  expect_same_steps(4, [make = GetParam().make](Log& log, int step) {
    const auto x = leaf({2, 3});
    const auto gradient = step % 2 == 0 ? at::ones({2, 3}) : make();
    log.attempt("of an inner node", [&] { x.sin().backward(gradient); });
    log.show("x.grad", x.grad());
    const auto y = leaf({2, 3});
    log.attempt("of a leaf", [&] { y.backward(gradient); });
    log.show("y.grad", y.grad());
  });
}

INSTANTIATE_TEST_SUITE_P(Root, RootGradients,
                         testing::Values(RootGradient{"Expanded",
                                                      [] {
                                                        return at::ones({}).expand({2, 3});
                                                      }},
                                         RootGradient{"Transposed",
                                                      [] {
                                                        return at::randn({3, 2}).t();
                                                      }},
                                         RootGradient{"Sliced",
                                                      [] {
                                                        return at::randn({2, 6}).slice(1, 0, 6, 2);
                                                      }},
                                         RootGradient{"WrongShape",
                                                      [] {
                                                        return at::ones({3, 2});
                                                      }},
                                         RootGradient{"Broadcastable", [] { return at::ones({3}); }},
                                         RootGradient{"Larger",
                                                      [] {
                                                        return at::ones({4, 2, 3});
                                                      }},
                                         RootGradient{"Double",
                                                      [] {
                                                        return at::randn({2, 3}, at::kDouble);
                                                      }},
                                         RootGradient{"Long",
                                                      [] {
                                                        return at::ones({2, 3}, at::kLong);
                                                      }},
                                         RootGradient{"Complex",
                                                      [] {
                                                        return at::randn({2, 3}, at::kComplexFloat);
                                                      }},
                                         RootGradient{"Sparse",
                                                      [] {
                                                        return at::randn({2, 3}).to_sparse();
                                                      }},
                                         RootGradient{"Meta",
                                                      [] {
                                                        return at::ones({2, 3}, at::kMeta);
                                                      }},
                                         RootGradient{"Negated",
                                                      [] {
                                                        return at::randn({2, 3})._neg_view();
                                                      }},
                                         RootGradient{"RequiringGrad",
                                                      [] {
                                                        return at::randn({2, 3}).set_requires_grad(true);
                                                      }}),
                         [](const auto& info) { return info.param.name; });

TEST(Root, NumberOfGradientsMustMatch) {
  expect_same_steps(2, [](Log& log, int) {
    const auto x = leaf({});
    log.attempt("two gradients", [&] { torch::autograd::backward({x.sin()}, {at::ones({}), at::ones({})}); });
    log.attempt("one of two", [&] { torch::autograd::backward({x.sin(), x.cos()}, {at::ones({})}); });
    log.attempt("undefined", [&] { torch::autograd::backward({x.sin(), x.cos()}, {at::Tensor(), at::ones({})}); });
    log.show("x.grad", x.grad());
  });
}

TEST(Root, SeveralWithAndWithoutGradients) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin();
    torch::autograd::backward({y.sum(), (y * w).sum(), y.exp()}, {{}, at::full({}, 2.0), at::ones({3})});
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Root, TheSameOneTwice) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = x.sin().sum();
    torch::autograd::backward({loss, loss}, {at::full({}, 2.0), at::full({}, 3.0)});
    log.show("x.grad", x.grad());
  });
}

TEST(Root, LeafAndItsFunctionTogether) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    torch::autograd::backward({x, x.sin()}, {at::ones({3}), at::full({3}, 2.0)});
    log.show("x.grad", x.grad());
  });
}

TEST(Root, GradientIsNotChangedAndNotKept) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto gradient = at::full({3}, 2.0);
    x.backward(gradient);
    (x * 1).backward(gradient);
    x.grad().add_(1);
    log.show("gradient", gradient);
    log.show("x.grad", x.grad());
    log.note("uses of the gradient: " + std::to_string(gradient.use_count()));
  });
}

}  // namespace
}  // namespace hindcast::tests
