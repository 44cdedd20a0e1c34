// Hooks on autograd nodes: pre hooks, post hooks, tensor pre hooks, retain_grad; and all kinds on one node together.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/support/programs.h"
#include "tests/support/recording_hooks.h"

namespace hindcast::tests {
namespace {

using torch::autograd::impl::grad_accumulator;

TEST(NodePreHook, ReadsAllGradientsOfTheNode) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3, 2});
    const auto rows = x.unbind(0);
    rows[0].grad_fn()->add_pre_hook(pre_hook([&](const variable_list& grads) {
      log.show("inputs of unbind's node", grads);
      return grads;
    }));
    (rows[0] * rows[2]).sum().backward();
    log.show("x.grad", x.grad());
  });
}

// The engine does not check what a pre hook returns before the node runs: it may be anything.
struct Change {
  const char* name;
  at::Tensor (*make)(const at::Tensor&);
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class ChangedGradient : public testing::TestWithParam<Change> {
 protected:
  /// A different gradient on every second step, so that hits see other gradients than the miss.
  static at::Tensor changed(int step, const at::Tensor& grad) { return step % 2 == 1 ? GetParam().make(grad) : grad; }
};

TEST_P(ChangedGradient, FromAPreHookOfAnInnerNode) {
  expect_same_steps(5, [](Log& log, int step) {
    const auto x = leaf({3, 3}), w = leaf({3, 3});
    const auto y = x * w;
    y.grad_fn()->add_pre_hook(pre_hook([&, step](const variable_list& grads) { return variable_list{changed(step, grads[0])}; }));
    log.attempt("backward", [&] { y.sin().sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST_P(ChangedGradient, FromAPostHookOfAnInnerNode) {
  expect_same_steps(5, [](Log& log, int step) {
    const auto x = leaf({3, 3}), w = leaf({3, 3});
    const auto y = x * w;
    const auto z = y.sin();
    z.grad_fn()->add_post_hook(
        post_hook([&, step](const variable_list& outputs, const variable_list&) { return variable_list{changed(step, outputs[0])}; }));
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST_P(ChangedGradient, FromAPreHookOfAnAccumulateGrad) {
  expect_same_steps(5, [](Log& log, int step) {
    const auto x = leaf({3, 3});
    const auto accumulator = grad_accumulator(x);
    accumulator->add_pre_hook(pre_hook([&, step](const variable_list& grads) { return variable_list{changed(step, grads[0])}; }));
    log.attempt("backward", [&] { x.exp().sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST_P(ChangedGradient, FromAPostHookThatFeedsAnAccumulateGrad) {
  expect_same_steps(5, [](Log& log, int step) {
    const auto x = leaf({3, 3});
    const auto y = x.exp();
    y.grad_fn()->add_post_hook(
        post_hook([&, step](const variable_list& outputs, const variable_list&) { return variable_list{changed(step, outputs[0])}; }));
    log.attempt("backward", [&] { y.sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST_P(ChangedGradient, IsAddedToAnotherOne) {
  expect_same_steps(5, [](Log& log, int step) {
    const auto x = leaf({3, 3});
    const auto y = x.exp();
    const auto a = y.sin(), b = y.cos();
    a.grad_fn()->add_post_hook(
        post_hook([&, step](const variable_list& outputs, const variable_list&) { return variable_list{changed(step, outputs[0])}; }));
    log.attempt("backward", [&] { (a + b).sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

INSTANTIATE_TEST_SUITE_P(NodeHooks, ChangedGradient,
                         testing::Values(Change{"Undefined", [](const at::Tensor&) { return at::Tensor(); }},
                                         Change{"Transposed", [](const at::Tensor& grad) { return grad.t(); }},
                                         Change{"Expanded",
                                                [](const at::Tensor& grad) {
                                                  return grad.select(0, 1).expand({3, 3});
                                                }},
                                         Change{"SlicedFromALarger",
                                                [](const at::Tensor& grad) {
                                                  return at::cat({grad, grad}, 1).slice(1, 1, 4);
                                                }},
                                         Change{"OtherDtype", [](const at::Tensor& grad) { return grad.to(at::kDouble); }},
                                         Change{"Half", [](const at::Tensor& grad) { return grad.to(at::kBFloat16); }},
                                         Change{"Broadcastable", [](const at::Tensor& grad) { return grad.sum(0, /*keepdim=*/true); }},
                                         Change{"Scalar", [](const at::Tensor& grad) { return grad.sum(); }},
                                         Change{"WrongShape",
                                                [](const at::Tensor& grad) {
                                                  return grad.new_ones({2, 5});
                                                }},
                                         Change{"Sparse", [](const at::Tensor& grad) { return grad.detach().to_sparse(); }},
                                         Change{"Negated", [](const at::Tensor& grad) { return grad._neg_view(); }},
                                         Change{"Nan", [](const at::Tensor& grad) { return at::full_like(grad, NAN); }}),
                         [](const auto& info) { return info.param.name; });

TEST(NodePreHook, RunsInOrderEachSeeingTheOneBefore) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    for (int i = 0; i < 3; ++i) {
      y.grad_fn()->add_pre_hook(pre_hook([&log, i](const variable_list& grads) {
        log.show("pre " + std::to_string(i), grads);
        return variable_list{grads[0] * 2};
      }));
    }
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(NodePreHook, ReturningTooManyGradientsIsNoticedDownstream) {
  expect_same_steps(3, [](Log& log, int step) {
    const auto x = leaf({2, 3});
    const auto rows = x.unbind(0);
    rows[0].grad_fn()->add_pre_hook(pre_hook([step](const variable_list& grads) {
      return step == 1 ? variable_list{grads[0], grads[1], grads[1]} : grads;
    }));
    log.attempt("backward", [&] { (rows[0] * rows[1]).sum().backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(NodePostHook, SeesBothSidesOfTheNode) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 3}), w = leaf({3, 2});
    const auto y = x.mm(w);
    y.grad_fn()->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list& inputs) {
      log.show("gradients out", outputs);
      log.show("gradients in", inputs);
      return outputs;
    }));
    y.sin().sum().backward();
  });
}

TEST(NodePostHook, RunsInOrderEachSeeingTheOneBefore) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    for (int i = 0; i < 3; ++i) {
      y.grad_fn()->add_post_hook(post_hook([&log, i](const variable_list& outputs, const variable_list&) {
        log.show("post " + std::to_string(i), outputs);
        return variable_list{outputs[0] + 1};
      }));
    }
    y.sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(NodePostHook, OfAnAccumulateGradSeesTheGradWritten) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto accumulator = grad_accumulator(x);
    accumulator->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list& inputs) {
      log.note(std::to_string(outputs.size()) + " outputs");
      log.show("gradient in", inputs);
      log.show("x.grad in the hook", x.grad());
      return outputs;
    }));
    const auto loss = x.sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(NodePostHook, DeletedByItsKeyIsSilent) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto key = y.grad_fn()->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list&) {
      log.note("called");
      return outputs;
    }));
    const auto loss = y.sum();
    loss.backward({}, /*retain_graph=*/true);
    log.note(y.grad_fn()->del_post_hook(key) ? "deleted" : "not found");
    loss.backward();
  });
}

TEST(NodePostHook, MayAddAHookToALaterNode) {
  expect_same_steps(
      3,
      [](Log& log, int) {
        const auto x = leaf({3});
        const auto y = x.sin();
        const auto z = y.exp();
        z.grad_fn()->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list&) {
          y.grad_fn()->add_pre_hook(pre_hook([&](const variable_list& grads) {
            log.show("late pre hook", grads);
            return variable_list{grads[0] * 4};
          }));
          return outputs;
        }));
        z.sum().backward();
        log.show("x.grad", x.grad());
      },
      Takeover::Some);  // nodes after one with a new hook run as themselves
}

TEST(TensorPreHook, RunsAlsoWhereTheNodeItselfIsNotNeeded) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto z = y.exp();
    y.grad_fn()->add_tensor_pre_hook(pre_hook([&](const variable_list& grads) {
      log.show("tensor pre hook", grads);
      return variable_list{grads[0] * 2};
    }));
    y.grad_fn()->add_pre_hook(pre_hook([&](const variable_list& grads) {
      log.note("pre hook");
      return grads;
    }));
    log.show("grad of y", torch::autograd::grad({z.sum()}, {y}));
    log.show("grad of x", torch::autograd::grad({x.sin().exp().sum()}, {x}));
  });
}

TEST(RetainGrad, KeepsTheGradientOfAnIntermediate) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 3});
    const auto y = x.sin();
    y.retain_grad();
    y.exp().sum().backward();
    log.show("grads", {x.grad(), y.grad()});
  });
}

TEST(RetainGrad, AddsUpOverTwoBackwards) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({2, 3});
    const auto y = x.sin();
    y.retain_grad();
    const auto loss = y.exp().sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    log.show("grads", {x.grad(), y.grad()});
  });
}

TEST(RetainGrad, SeesWhatAllHooksMadeWhateverTheOrderOfRegistration) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    y.register_hook([](at::Tensor grad) { return grad * 2; });
    y.retain_grad();
    y.register_hook([](at::Tensor grad) { return grad + 100; });
    y.exp().sum().backward();
    log.show("grads", {x.grad(), y.grad()});
  });
}

TEST(RetainGrad, OfATensorThatIsGoneDoesNothing) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    at::Tensor loss;
    {
      const auto y = x.sin();
      y.retain_grad();
      loss = y.exp().sum();
    }
    loss.backward();
    log.show("x.grad", x.grad());
  });
}

TEST(RetainGrad, FollowsATensorChangedInPlace) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    auto y = x * 2;
    y.retain_grad();
    y.mul_(5);
    y.sin().sum().backward();
    log.show("grads", {x.grad(), y.grad()});
  });
}

TEST(RetainGrad, OfEveryOutputOfOneNode) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({6, 2});
    const auto parts = x.split(2);
    for (const auto& part : parts) {
      part.retain_grad();
    }
    (parts[0] * parts[2]).sum().backward();
    log.show("grads", {x.grad(), parts[0].grad(), parts[1].grad(), parts[2].grad()});
  });
}

TEST(RetainGrad, OfTheRoot) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = x.sin().sum();
    loss.retain_grad();
    loss.backward();
    log.show("grads", {x.grad(), loss.grad()});
  });
}

TEST(KindsOfHooks, OnOneNodeRunInTheStockOrder) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = x.sin();
    const auto node = y.grad_fn();
    node->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list& inputs) {
      log.show("post hook", {outputs[0], inputs[0]});
      return outputs;
    }));
    node->add_pre_hook(pre_hook([&](const variable_list& grads) {
      log.show("pre hook", grads);
      log.show("y.grad there", y.grad());
      return variable_list{grads[0] * 2};
    }));
    y.retain_grad();
    node->add_tensor_pre_hook(pre_hook([&](const variable_list& grads) {
      log.show("tensor pre hook", grads);
      return variable_list{grads[0] + 1};
    }));
    y.register_hook([&](at::Tensor grad) {
      log.show("register_hook", grad);
      return grad * 3;
    });
    y.exp().sum().backward();
    log.show("grads", {x.grad(), y.grad()});
  });
}

TEST(KindsOfHooks, OnOneLeafRunInTheStockOrder) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto node = grad_accumulator(x);
    torch::autograd::impl::set_post_acc_grad_hooks(
        x, std::make_unique<LambdaGradReadyHook>([&](const at::Tensor& tensor) { log.show("grad ready", tensor.grad()); }));
    node->add_post_hook(post_hook([&](const variable_list& outputs, const variable_list&) {
      log.show("post hook", x.grad());
      return outputs;
    }));
    node->add_pre_hook(pre_hook([&](const variable_list& grads) {
      log.show("pre hook", grads);
      return variable_list{grads[0] * 2};
    }));
    x.register_hook([&](at::Tensor grad) {
      log.show("register_hook", grad);
      return grad * 3;
    });
    x.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

}  // namespace
}  // namespace hindcast::tests
