// Hooks that behave differently from one step to the next, on the same graph: a hit sees other behaviour than the miss.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

at::Tensor change(int behaviour, const at::Tensor& grad) {
  switch (behaviour) {
    case 0:
      return grad;
    case 1:
      return at::Tensor();
    case 2:
      return grad.t().contiguous().t();
    case 3:
      return grad.to(at::kDouble);
    case 4:
      return grad.select(0, 0).expand_as(grad);
    case 5:
      return grad.detach().to_sparse();
    case 6:
      return at::zeros_like(grad);
    default:
      throw std::runtime_error("behaviour " + std::to_string(behaviour));
  }
}

/// The behaviours of seven steps; each list is one test. 7 throws.
using Behaviours = std::vector<int>;

class ChangingHook : public testing::TestWithParam<Behaviours> {};

TEST_P(ChangingHook, BeforeANode) {
  expect_same_steps(GetParam().size(), [](Log& log, int step) {
    const auto x = leaf({3, 3}), w = leaf({3, 3});
    const auto y = x.mm(w);
    const auto z = y.tanh();
    z.grad_fn()->add_pre_hook(pre_hook([&, step](const variable_list& grads) {
      log.show("gradient", grads[0]);
      return variable_list{change(GetParam()[step], grads[0])};
    }));
    log.attempt("backward", [&] { (z + x).exp().sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST_P(ChangingHook, AfterANode) {
  expect_same_steps(GetParam().size(), [](Log& log, int step) {
    const auto x = leaf({3, 3}), w = leaf({3, 3});
    const auto y = x.mm(w);
    const auto z = y.tanh();
    z.grad_fn()->add_post_hook(post_hook([&, step](const variable_list& outputs, const variable_list&) {
      log.show("gradient", outputs[0]);
      return variable_list{change(GetParam()[step], outputs[0])};
    }));
    log.attempt("backward", [&] { (z + x).exp().sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST_P(ChangingHook, BeforeTheGradIsWritten) {
  expect_same(
      [](Log& log) {
        // One leaf for all steps: its grads accumulate, whatever they are.
        const auto x = leaf({3, 3});
        const auto accumulator = torch::autograd::impl::grad_accumulator(x);
        size_t step = 0;
        accumulator->add_pre_hook(pre_hook([&](const variable_list& grads) { return variable_list{change(GetParam()[step], grads[0])}; }));
        for (; step < GetParam().size(); ++step) {
          log.attempt("backward", [&] { x.sin().sum().backward(); });
          log.show("x.grad", x.grad());
        }
      },
      Takeover::Hits);
}

TEST_P(ChangingHook, TwoAtOnceInOppositeOrder) {
  expect_same_steps(GetParam().size(), [](Log& log, int step) {
    const auto x = leaf({3, 3});
    const auto a = x.sin(), b = x.cos();
    a.grad_fn()->add_pre_hook(pre_hook([step](const variable_list& grads) { return variable_list{change(GetParam()[step], grads[0])}; }));
    b.grad_fn()->add_pre_hook(
        pre_hook([step](const variable_list& grads) { return variable_list{change(GetParam()[GetParam().size() - 1 - step], grads[0])}; }));
    log.attempt("backward", [&] { (a * b).sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

INSTANTIATE_TEST_SUITE_P(Hooks, ChangingHook,
                         testing::Values(Behaviours{0, 1, 2, 3, 4, 5, 6}, Behaviours{0, 0, 1, 0, 1, 1, 0}, Behaviours{1, 0, 1, 0, 2, 0, 2},
                                         Behaviours{3, 0, 3, 0, 0, 3, 3}, Behaviours{5, 0, 5, 5, 0, 6, 0}, Behaviours{0, 7, 0, 7, 0, 0, 7},
                                         Behaviours{7, 0, 1, 7, 2, 0, 0}));

TEST(ChangingHooks, RegisteredOnEveryOtherStep) {
  expect_same_steps(6, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = x * w;
    if (step % 2 == 1) y.register_hook([](at::Tensor grad) { return grad * 2; });
    if (step % 3 == 1) w.register_hook([](at::Tensor grad) { return grad + 1; });
    if (step >= 4) y.retain_grad();
    y.exp().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(ChangingHooks, OnALeafThatLivesThroughAllSteps) {
  expect_same(
      [](Log& log) {
        const auto x = leaf({3});
        std::vector<unsigned> hooks;
        for (int step = 0; step < 8; ++step) {
          if (step % 3 == 1) {
            hooks.push_back(x.register_hook([&log, step](at::Tensor grad) {
              log.note("hook of step " + std::to_string(step));
              return grad * (step + 1);
            }));
          }
          if (step == 5) x.remove_hook(hooks[0]);
          x.sin().sum().backward();
          log.show("x.grad", x.grad());
        }
      },
      Takeover::Hits);
}

TEST(ChangingHooks, WhoseClosureHoldsAChangingNumber) {
  expect_same(
      [](Log& log) {
        const auto x = leaf({3});
        double scale = 1;
        x.register_hook([&](at::Tensor grad) { return grad * scale; });
        for (int step = 0; step < 5; ++step) {
          scale = 1.0 / (step + 1);
          x.mutable_grad().reset();
          x.sin().sum().backward();
          log.show("x.grad", x.grad());
        }
      },
      Takeover::Hits);
}

TEST(ChangingHooks, WhileBatchSizesChange) {
  expect_same_steps(10, [](Log& log, int step) {
    const auto x = at::randn({step % 3 + 2, 4});
    const auto w = leaf({4, 4});
    const auto y = x.mm(w);
    y.register_hook([step](at::Tensor grad) { return step % 2 == 0 ? grad : grad.t().contiguous().t(); });
    y.tanh().sum().backward();
    log.show("w.grad", w.grad());
  });
}

// In a hook, LibTorch's current node is the one that carries the backward; its hooks must not outlive that.
TEST(ChangingHooks, OnTheCurrentNodeOfLibTorch) {
  const auto guard = enable(compilers::eager());
  int calls = 0;
  const auto backward = [&](bool with_hook) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([&](const at::Tensor&) {
      if (!with_hook) return;
      const auto current = torch::autograd::get_current_node();
      current->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list&) {
        ++calls;
        return outputs;
      }));
      current->add_pre_hook(pre_hook([](const variable_list& gradients) {
        ADD_FAILURE() << "of a node that has run";
        return gradients;
      }));
    });
    y.sum().backward();
  };
  for (int step = 0; step < 4; ++step) backward(step % 2 == 0);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace hindcast::tests
