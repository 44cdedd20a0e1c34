// backward(inputs=...) and torch::autograd::grad: only what is requested is computed and written.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

using torch::autograd::backward;
using torch::autograd::grad;

/// Notes when the node of `tensor` runs: shows which nodes a call needs.
at::Tensor watched(Log& log, const char* name, const at::Tensor& tensor) {
  tensor.grad_fn()->add_pre_hook(pre_hook([&log, name](const variable_list& grads) {
    log.note(std::string(name) + " runs");
    return grads;
  }));
  return tensor;
}

TEST(BackwardInputs, WritesOnlyTheLeavesThatAreAskedFor) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3}), b = leaf({3});
    const auto y = watched(log, "mul", x * w);
    const auto loss = (y + watched(log, "exp", b.exp())).sum();
    backward({loss}, {}, {}, false, {step == 1 ? b : w});
    log.show("grads", {x.grad(), w.grad(), b.grad()});
  });
}

TEST(BackwardInputs, OfSeveralLeavesInAnyOrder) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3}), b = leaf({3});
    const auto loss = (x * w + b).sin().sum();
    backward({loss}, {}, /*retain_graph=*/true, false, {b, x});
    backward({loss}, {}, {}, false, {x, b, w});
    log.show("grads", {x.grad(), w.grad(), b.grad()});
  });
}

TEST(BackwardInputs, NonLeafGetsItsGradWhenItRetainsIt) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = watched(log, "sin", x.sin());
    y.retain_grad();
    const auto loss = watched(log, "exp", y.exp()).sum();
    log.attempt("backward", [&] { backward({loss}, {}, {}, false, {y}); });
    log.show("grads", {x.grad(), y.grad()});
  });
}

TEST(BackwardInputs, LeafAndNonLeafTogether) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = watched(log, "sin", x.sin());
    y.retain_grad();
    log.attempt("backward", [&] { backward({(y * w).sum()}, {}, {}, false, {y, x}); });
    log.show("grads", {x.grad(), w.grad(), y.grad()});
  });
}

TEST(BackwardInputs, UnusedOneStaysWithoutGrad) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), unused = leaf({3});
    log.attempt("backward", [&] { backward({x.sin().sum()}, {}, {}, false, {unused}); });
    log.show("grads", {x.grad(), unused.grad()});
  });
}

TEST(BackwardInputs, HooksRunOnTheWayOnly) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin(), z = w.cos();
    y.register_hook([&](at::Tensor grad) { log.show("hook of y", grad); });
    z.register_hook([&](at::Tensor grad) { log.show("hook of z", grad); });
    x.register_hook([&](at::Tensor grad) { return grad * 2; });
    w.register_hook([&](at::Tensor grad) { log.show("hook of w", grad); });
    backward({(y * z).sum()}, {}, {}, false, {x});
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(BackwardInputs, AddsToTheGradThatIsThere) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    for (int i = 0; i < 3; ++i) {
      backward({(x * w).sum()}, {}, {}, false, {x});
    }
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Grad, ReturnsAndWritesNothing) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    log.show("result", grad({(x * w).sin().sum()}, {w, x}));
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Grad, OfIntermediates) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = watched(log, "sin", x.sin());
    const auto z = watched(log, "exp", y.exp());
    log.show("result", grad({z.sum()}, {z, y}));
  });
}

TEST(Grad, OfAnIntermediateAndOfTheLeafBelowIt) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = watched(log, "sin", x.sin());
    log.show("result", grad({y.exp().sum()}, {y, x}));
  });
}

TEST(Grad, OfTheOutputItself) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    log.show("result", grad({y}, {y, x}, {at::full({3}, 2.0)}));
    log.show("of a leaf", grad({x}, {x}, {at::full({3}, 3.0)}));
  });
}

TEST(Grad, OfTheSameInputTwice) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    log.show("result", grad({x.sin().sum()}, {x, x}));
  });
}

TEST(Grad, OfOneOutputOfANodeWithMany) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3, 4});
    const auto rows = x.unbind(0);
    log.show("result", grad({(rows[0] * rows[1]).sum()}, {rows[1], rows[0]}));
    log.attempt("unused row", [&] { grad({(rows[0] * rows[1]).sum()}, {rows[2]}); });
  });
}

TEST(Grad, UnusedInputIsAnErrorUnlessAllowed) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), unused = leaf({3});
    log.attempt("not allowed", [&] { grad({x.sin().sum()}, {x, unused}); });
    log.show("allowed", grad({x.sin().sum()}, {x, unused}, {}, {}, false, /*allow_unused=*/true));
    log.attempt("does not require grad", [&] { grad({x.sin().sum()}, {at::ones({3})}); });
  });
}

TEST(Grad, OfSeveralOutputs) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x.sin();
    log.show("result", grad({y, (y * w).sum()}, {x, w}, {at::ones({3}), {}}));
  });
}

TEST(Grad, CapturesTheGradientAfterTheHooks) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([](at::Tensor grad) { return grad * 2; });
    x.register_hook([](at::Tensor grad) { return grad + 1; });
    y.grad_fn()->add_pre_hook(pre_hook([](const variable_list& grads) { return variable_list{grads[0] * 10}; }));
    log.show("result", grad({y.exp().sum()}, {y, x}));
  });
}

TEST(Grad, DoesNotCallTheHooksOfWritingGrads) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto accumulator = torch::autograd::impl::grad_accumulator(x);
    accumulator->add_pre_hook(pre_hook([&](const variable_list& grads) {
      log.note("pre hook");
      return grads;
    }));
    accumulator->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list&) {
      log.note("post hook");
      return outputs;
    }));
    hindcast::on_grad_ready(x, [&](const at::Tensor&) { log.note("grad ready"); });
    log.show("result", grad({x.sin().sum()}, {x}));
  });
}

TEST(Grad, WithUndefinedGradientsOnTheWay) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 3});
    const auto rows = x.unbind(0);
    const auto y = rows[0].sin(), z = rows[1].cos();
    y.grad_fn()->add_pre_hook(pre_hook([](const variable_list&) { return variable_list{at::Tensor()}; }));
    log.attempt("grad", [&] { log.show("result", grad({(y * z).sum()}, {x, y})); });
  });
}

TEST(Grad, ResultsMayBeChangedWithoutChangingEachOther) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto results = grad({x + w}, {x, w}, {at::ones({3})});
    log.note(results[0].is_same(results[1]) ? "one tensor" : "two tensors");
    log.show("results", results);
  });
}

TEST(Grad, AlternatesWithBackwardOnOneStructure) {
  expect_same_steps(6, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3});
    const auto loss = (x * w).exp().sum();
    switch (step % 3) {
      case 0:
        loss.backward();
        break;
      case 1:
        log.show("result", grad({loss}, {w}));
        break;
      case 2:
        backward({loss}, {}, {}, false, {x});
        break;
    }
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(Grad, SkipsWhatOnlyOtherInputsNeed) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({4, 3}), w1 = leaf({3, 5}), w2 = leaf({5, 2});
    const auto hidden = watched(log, "mm 1", x.mm(w1));
    const auto out = watched(log, "mm 2", watched(log, "tanh", hidden.tanh()).mm(w2));
    log.show("w2 only", grad({out.sum()}, {w2}, {}, /*retain_graph=*/true));
    log.show("x only", grad({out.sum()}, {x}, {}, /*retain_graph=*/true));
    log.show("w1 and hidden", grad({out.sum()}, {w1, hidden}));
  });
}

TEST(Grad, CreateGraphRunsOnTheStockEngine) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto first = grad({x.pow(3).sum()}, {x}, {}, {}, /*create_graph=*/true);
    log.show("first", first);
    log.show("second", grad({first[0].sum()}, {x}));
  });
}

}  // namespace
}  // namespace hindcast::tests
