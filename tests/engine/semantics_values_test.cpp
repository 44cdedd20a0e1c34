// Unusual values and graphs: complex, mixed dtypes, no dimensions, no elements, NaN, undefined gradients, long
// chains and wide graphs.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

TEST(Values, ComplexLeaves) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}, at::kComplexFloat), w = leaf({3}, at::kComplexDouble);
    const auto y = (x * w.to(at::kComplexFloat)).exp() + x.conj();
    y.abs().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Values, RealLeafMeetsComplexOne) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3}, at::kComplexFloat);
    at::real(x * w + x).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Values, ConjugateAndNegativeViews) {
  expect_same_steps(4, [](Log& log, int step) {
    auto x = leaf({3}, at::kComplexFloat);
    const auto factor = at::randn({3}, at::kComplexFloat);
    const auto y = x * (step % 2 == 0 ? factor : factor.conj());
    (at::real(y) + at::imag(y.conj())).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Values, ComplexRootWithItsGradient) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}, at::kComplexFloat);
    log.attempt("no gradient", [&] { x.exp().sum().backward(); });
    x.exp().sum().backward(at::full({}, c10::complex<float>(1, 2), at::kComplexFloat));
    log.show("x.grad", x.grad());
  });
}

TEST(Values, MixedDtypesAreCastOnEveryEdge) {
  expect_same_steps(3, [](Log& log, int) {
    const auto f = leaf({3}), d = leaf({3}, at::kDouble), b = leaf({3}, at::kBFloat16), h = leaf({3}, at::kHalf);
    ((f * d) + b * h + d.to(at::kFloat) * b).sum().backward();
    log.show("grads", {f.grad(), d.grad(), b.grad(), h.grad()});
  });
}

TEST(Values, BroadcastGradientsAreSummed) {
  expect_same_steps(3, [](Log& log, int) {
    const auto row = leaf({4}), column = leaf({3, 1}), scalar = leaf({}), full = leaf({2, 3, 4});
    (full * row + column * scalar).exp().sum().backward();
    log.show("grads", {row.grad(), column.grad(), scalar.grad(), full.grad()});
  });
}

TEST(Values, ZeroDimensions) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({}), w = leaf({});
    (x * w).sin().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Values, ScalarTensorMeetsMatrix) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({}, at::kDouble), w = leaf({2, 2});
    (w * x + x).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Values, NoElements) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({0, 3}), w = leaf({3, 2}), b = leaf({2});
    at::addmm(b, x, w).tanh().sum().backward();
    log.show("grads", {x.grad(), w.grad(), b.grad()});
  });
}

TEST(Values, BatchThatBecomesEmpty) {
  expect_same_steps(6, [](Log& log, int step) {
    const auto w = leaf({3, 2});
    at::randn({step % 3, 3}).mm(w).relu().sum().backward();
    log.show("w.grad", w.grad());
  });
}

TEST(Values, NanInfinityAndNegativeZero) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    const auto x =
        (step % 2 == 0 ? at::tensor({1.f, 2.f, 3.f, 4.f, 5.f}) : at::tensor({nan, inf, -inf, -0.f, 0.f})).set_requires_grad(true);
    const auto w = leaf({5});
    (x.relu() * w + x.sqrt() + x.abs() + at::where(x > 0, x, w)).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Values, IntegerTensorsInTheGraph) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4});
    const auto i = at::tensor({3, 1, 2, 0});
    (x.index({i}) * i + x.gather(0, i).pow(2)).sum().backward();
    log.show("x.grad", x.grad());
  });
}

// The visitor has scalars in its key: it hits when the values come back.
TEST(Values, ScalarThatChangesFromStepToStep) {
  expect_same_steps(8, [](Log& log, int step) {
    const auto x = leaf({3});
    (x * (1.0 / (step % 4 + 1))).pow(2.0 + step % 2).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(UndefinedGradients, ComeFromUnusedOutputs) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3, 4}), w = leaf({4});
    const auto [values, indices] = x.max(1);
    const auto parts = at::split(w, 2);
    (values.sum() + parts[1].exp().sum()).backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(UndefinedGradients, PassThroughWholeBranches) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin();
    y.grad_fn()->add_pre_hook(pre_hook([](const variable_list&) { return variable_list{at::Tensor()}; }));
    const auto z = y.exp() * w;
    (z + x.cos()).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(UndefinedGradients, ReachALeafAlone) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    x.register_hook([&](at::Tensor grad) { log.show("gradient of x", grad); });
    hindcast::on_grad_ready(x, [&](const at::Tensor& param) { log.show("ready", param.grad()); });
    const auto y = x.sin();
    y.grad_fn()->add_pre_hook(pre_hook([](const variable_list&) { return variable_list{at::Tensor()}; }));
    (y + w).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(UndefinedGradients, ReachALeafThatHasAGrad) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    x.mutable_grad() = at::ones({3});
    const auto y = x.sin();
    y.grad_fn()->add_pre_hook(pre_hook([](const variable_list&) { return variable_list{at::Tensor()}; }));
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Graphs, ChainOfTwentyThousandNodes) {
  expect_same_steps(2, [](Log& log, int) {
    const auto x = leaf({2});
    auto y = x;
    for (int i = 0; i < 20000; ++i) {
      y = i % 2 == 0 ? y * 1.0001 : y.sin();
    }
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Graphs, ChainOfTwentyThousandNodesIsFreedWithoutABackward) {
  expect_same_steps(2, [](Log& log, int) {
    const auto x = leaf({2});
    auto y = x;
    for (int i = 0; i < 20000; ++i) {
      y = y.sin();
    }
    x.cos().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Graphs, LeafUsedTwoThousandTimes) {
  expect_same_steps(2, [](Log& log, int) {
    const auto x = leaf({2});
    auto sum = at::zeros({2});
    for (int i = 0; i < 2000; ++i) {
      sum = sum + x * i;
    }
    sum.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Graphs, LadderWithManyPaths) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto a = x.sin(), b = x.cos();
    for (int i = 0; i < 20; ++i) {
      const auto sum = (a + b) * 0.5, product = a * b;
      a = sum;
      b = product;
    }
    (a + b).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(Graphs, ThatDifferInOneEdgeOnly) {
  expect_same_steps(8, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3});
    const auto a = x * w, b = x * w;
    const auto left = step % 2 == 0 ? a : b, right = step % 4 < 2 ? a : b;
    (left.sin() * right.cos()).sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Graphs, ThatDifferInRequiresGradOnly) {
  expect_same_steps(8, [](Log& log, int step) {
    const auto x = leaf({3}), w = at::randn({3}).set_requires_grad(step % 2 == 0), b = leaf({3});
    (x * w + b).sin().sum().backward();
    log.show("grads", {x.grad(), w.grad(), b.grad()});
  });
}

TEST(Graphs, SharedPieceOfTwoLosses) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto shared = x.sin();
    const auto first = shared.exp().sum(), second = shared.cos().sum();
    first.backward({}, /*retain_graph=*/true);
    second.backward();
    log.show("x.grad", x.grad());
  });
}

}  // namespace
}  // namespace hindcast::tests
