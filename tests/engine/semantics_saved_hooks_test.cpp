// Saved tensors with pack and unpack hooks, as checkpointing and offloading use them: unpacked when their node runs, as often as by the
// stock engine.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/torch.h>

#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

/// Notes both calls; keeps what `pack` returns, for instance a smaller tensor.
struct NotingHooks : torch::autograd::SavedVariableHooks {
  using Change = at::Tensor (*)(const at::Tensor&);
  NotingHooks(Log& log, std::string name, Change pack, Change unpack) : log(log), name(std::move(name)), pack(pack), unpack(unpack) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    log.note("pack " + name);
    packed = pack(tensor);
  }
  at::Tensor call_unpack_hook() override {
    log.note("unpack " + name);
    return unpack(packed);
  }

  Log& log;
  std::string name;
  Change pack, unpack;
  at::Tensor packed;
};

at::Tensor as_it_is(const at::Tensor& tensor) { return tensor.detach(); }
at::Tensor to_half(const at::Tensor& tensor) { return tensor.detach().to(at::kHalf); }
at::Tensor to_float(const at::Tensor& tensor) { return tensor.to(at::kFloat); }
at::Tensor failing(const at::Tensor&) { throw std::runtime_error("the unpack hook's own words"); }

at::Tensor sin_with_hooks(Log& log, const std::string& name, const at::Tensor& x, NotingHooks::Change pack = as_it_is,
                          NotingHooks::Change unpack = as_it_is) {
  const auto y = x.sin();
  auto& node = dynamic_cast<torch::autograd::generated::SinBackward0&>(*y.grad_fn());
  node.self_.register_hooks(std::make_unique<NotingHooks>(log, name, pack, unpack));
  return y;
}

TEST(SavedTensorHooks, UnpackWhenTheNodeRuns) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto y = sin_with_hooks(log, "x", x);
    const auto z = sin_with_hooks(log, "y", y);
    y.register_hook([&](at::Tensor grad) { log.show("hook of y", grad); });
    z.exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(SavedTensorHooks, MayChangeTheValue) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    sin_with_hooks(log, "x", x, to_half, to_float).sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(SavedTensorHooks, UnpackOnceForEveryBackward) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3});
    const auto loss = sin_with_hooks(log, "x", x).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    log.attempt("third", [&] { loss.backward(); });
    log.show("x.grad", x.grad());
  });
}

TEST(SavedTensorHooks, ThatThrow) {
  expect_same_steps(4, [](Log& log, int step) {
    const auto x = leaf({3}), w = leaf({3});
    const auto y = sin_with_hooks(log, "x", x, as_it_is, step % 2 == 1 ? failing : as_it_is);
    log.attempt("backward", [&] { (y * w).sum().backward(); });
    log.show("grads", {x.grad(), w.grad()});
  });
}

TEST(SavedTensorHooks, OnSomeStepsOnly) {
  expect_same_steps(6, [](Log& log, int step) {
    const auto x = leaf({3});
    (step % 2 == 0 ? x.sin() : sin_with_hooks(log, "x", x)).exp().sum().backward();
    log.show("x.grad", x.grad());
  });
}

TEST(SavedTensorHooks, AreNotCalledForANodeThatIsNotNeeded) {
  expect_same_steps(3, [](Log& log, int) {
    const auto x = leaf({3}), w = leaf({3});
    const auto loss = (sin_with_hooks(log, "x", x) * w.sin()).sum();
    log.show("grad of w", torch::autograd::grad({loss}, {w}));
  });
}

}  // namespace
}  // namespace hindcast::tests
