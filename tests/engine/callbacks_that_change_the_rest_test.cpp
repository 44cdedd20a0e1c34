// A callback of on_grad_ready() runs in the middle of a backward and may change the rest of it. On the first step it does nothing, so that
// the change happens in a replay.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <functional>

#include "hindcast/hindcast.h"
#include "tests/support/programs.h"

namespace hindcast::tests {
namespace {

struct Program {
  at::Tensor x = leaf({4}), a = leaf({4}), w = leaf({4});
  at::Tensor inner = x * w;
  at::Tensor product = inner.sin().cos() * a;  // a's gradient is ready before those of x and w
};

/// Runs `change` when a's gradient has been written, on every step but the first.
void expect_same_when(const std::function<void(Program&)>& prepare, const std::function<void(Program&)>& change) {
  const auto step = [&](Log& log, int step) {
    Program program;
    prepare(program);
    hindcast::on_grad_ready(program.a, [&](const at::Tensor&) {
      if (step > 0) change(program);
    });
    log.attempt("backward", [&] { program.product.sum().backward(); });
    log.show("grads", {program.x.grad(), program.a.grad(), program.w.grad()});
  };
  expect_same_steps(4, step, Takeover::Some);
}

void nothing(Program&) {}
void hook_before(Program& program) {
  program.product.register_hook([](const at::Tensor&) {});
}
void hook_on_inner(Program& program) {
  program.inner.register_hook([](const at::Tensor& grad) { return grad * 10; });
}
void write_to_what_is_saved(Program& program) {
  const at::NoGradGuard no_grad;
  program.w.mul_(2);
}

TEST(ACallbackThatRegistersAHook, IsFollowed) { expect_same_when(nothing, hook_on_inner); }

TEST(ACallbackThatRegistersAHook, IsFollowedBehindAnotherHook) { expect_same_when(hook_before, hook_on_inner); }

TEST(ACallbackThatWritesToASavedTensor, GivesTheStockError) { expect_same_when(nothing, write_to_what_is_saved); }

TEST(ACallbackThatWritesToASavedTensor, GivesTheStockErrorBehindAHook) { expect_same_when(hook_before, write_to_what_is_saved); }

// In the fused plan, what runs before the hook is a kernel.
TEST(AHookThatWritesToWhatItsOwnNodeSaved, GivesTheStockError) {
  const auto step = [](Log& log, int step) {
    const auto x = leaf({4}).abs();
    const auto y = x.exp();
    y.register_hook([&](const at::Tensor&) {
      const at::NoGradGuard no_grad;
      if (step > 1) y.detach().mul_(2);
    });
    log.attempt("grad", [&] { log.show("grad", torch::autograd::grad({y.sin().mul(3).sum()}, {x})); });
  };
  expect_same_steps(4, step, Takeover::Some);
}

}  // namespace
}  // namespace hindcast::tests
