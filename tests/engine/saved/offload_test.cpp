// OffloadToHost on a machine without a device: everything stays where it is, with correct results. tests/whole/streams tests it with a
// device.

#include <gmock/gmock.h>
#include <hindcast/aot.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <thread>

#include "tests/engine/saved/with_and_without.h"

namespace hindcast::tests {
namespace {

at::Tensor function(const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh().exp().mm(w.t()); }

TEST(Offload, OnTheCPUChangesNothing) {
  const StepWithCheckpoints program = [](Log& log, int step, const Checkpoints& call) {
    const auto x = leaf({3 + step % 2, 4}), w = leaf({4, 4});
    const auto forward = [&] { return call.are_on ? offload_to_host(OffloadOptions{.min_bytes = 0}, function, x, w) : function(x, w); };
    const auto y = forward();
    const auto first = torch::autograd::grad({y.sum()}, {x, w}, {}, /*retain_graph=*/true, /*create_graph=*/step == 2);
    log.show("first", first);
    y.square().sum().backward();
    log.show("grads", {x.grad(), w.grad()});
    log.attempt("again", [&] { y.sum().backward(); });
  };
  expect_same_with_checkpoints(4, program);
}

TEST(Offload, FindsAWriteToASavedTensor) {
  const StepWithCheckpoints program = [](Log& log, int step, const Checkpoints& call) {
    const auto x = leaf({3});
    const auto y = x * 2;
    std::optional<OffloadToHost> offload;
    if (call.are_on) offload.emplace();
    const auto z = step % 2 == 0 ? y.sin() : y.exp();
    offload.reset();
    (step % 2 == 0 ? y : z).detach().add_(1);
    try {
      z.sum().backward();
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      EXPECT_THAT(text, testing::HasSubstr("has been modified by an inplace operation: [CPUFloatType [3]]"));
      EXPECT_THAT(text, testing::HasSubstr("is at version 1; expected version 0 instead."));
      log.note("refused");
    }
    log.show("x.grad", x.grad());
  };
  expect_same_with_checkpoints(4, program, Takeover::Any);
}

TEST(Offload, NestsWithCheckpoints) {
  expect_same_with_checkpoints(3, [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3, 4}), w = leaf({4, 4});
    const auto inner = [&](const at::Tensor& a, const at::Tensor& b) {
      return call.are_on ? offload_to_host(OffloadOptions{}, function, a, b) : function(a, b);
    };
    const auto outer = [&] { return call(function, call(inner, x, w), w); };
    const auto y = call.are_on ? offload_to_host(outer) : outer();
    y.sum().backward();
    log.show("grads", {x.grad(), w.grad()});
  });
}

// The scope also applies to what is saved for the function's backward, and to its trace.
TEST(Offload, OfACompiledFunction) {
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  const auto compiled = aot_function(function, options);
  const auto x = leaf({3, 4}), w = leaf({4, 4});
  const auto gradients = [&](auto&& call) {
    x.mutable_grad() = w.mutable_grad() = at::Tensor();
    call(x, w).square().sum().backward();
    return std::vector{x.grad(), w.grad()};
  };
  const auto expected = gradients(function);
  for (int step = 0; step < 8; ++step) {
    std::optional<Guard> guard;
    if (step > 3) guard.emplace(hindcast::enable(compilers::eager()));
    const auto given =
        gradients([&](const auto& a, const auto& b) { return offload_to_host(OffloadOptions{.min_bytes = 0}, compiled, a, b); });
    EXPECT_TRUE(given[0].equal(expected[0]) && given[1].equal(expected[1])) << step;
  }
  EXPECT_EQ(compiled.stats().traces, 1U);
  EXPECT_EQ(compiled.stats().hits, 7U);
}

TEST(Offload, DestroyedOnAnotherThreadLeavesTheFirstAsItIs) {
  const auto x = leaf({3});
  std::thread([&] {
    auto offload = std::make_unique<OffloadToHost>();
    std::thread([&] { offload.reset(); }).join();
    x.sin().sum().backward();
  }).join();
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
}

}  // namespace
}  // namespace hindcast::tests
