// Errors in a checkpoint are reported, and leave autograd as it was.

#include <ATen/SavedTensorHooks.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "hooks/saved_tensor_hooks.h"
#include "tests/engine/saved/with_and_without.h"

namespace hindcast::tests {
namespace {

using testing::HasSubstr;
using testing::Throws;
using testing::ThrowsMessage;

/// With the stock engine, captured and replayed.
void on_both_engines(const std::function<void()>& program) {
  program();
  const auto guard = hindcast::enable();
  hindcast::reset();
  for (int i = 0; i < 3; ++i) program();
}

bool has_hooks() { return hooks::current_saved_tensor_hooks() != nullptr; }

TEST(CheckpointErrors, FewerTensors) {
  on_both_engines([] {
    const auto x = leaf({3});
    int runs = 0;
    const auto loss = checkpoint([&](const at::Tensor& a) { return ++runs == 1 ? a.sin().exp() : a.sin() * 2; }, x).sum();
    EXPECT_THAT([&] { loss.backward(); },
                ThrowsMessage<CheckpointError>(HasSubstr("fewer tensors than the forward: seen 1, expected 2. ")));
    EXPECT_FALSE(has_hooks());
  });
}

TEST(CheckpointErrors, MoreTensors) {
  on_both_engines([] {
    CheckpointOptions options;
    options.early_stop = false;
    const auto x = leaf({3});
    int runs = 0;
    const auto function = [&](const at::Tensor& a) { return ++runs == 1 ? a.sin() : a.sin().exp(); };
    const auto loss = checkpoint(options, function, x).sum();
    EXPECT_THAT([&] { loss.backward(); }, ThrowsMessage<CheckpointError>(HasSubstr("more tensors than the forward, which saved 1. ")));
    // The recomputation has all that is needed before it differs.
    runs = 0;
    checkpoint(function, x).sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  });
}

TEST(CheckpointErrors, OtherTensors) {
  on_both_engines([] {
    const auto x = leaf({3});
    int runs = 0;
    const auto sizes = checkpoint([&](const at::Tensor& a) { return ++runs == 1 ? a.sin().exp() : a.repeat({2}).sin().exp(); }, x).sum();
    EXPECT_THAT([&] { sizes.backward(); }, ThrowsMessage<CheckpointError>(HasSubstr(
                                               "saved tensor 1 of 2 is another one in the recomputation: expected Float [3] on cpu "
                                               "as in the forward, seen Float [6] on cpu. ")));
    runs = 0;
    const auto dtypes =
        checkpoint([&](const at::Tensor& a) { return ++runs == 1 ? a.sin().exp() : a.sin().to(at::kDouble).exp(); }, x).sum();
    EXPECT_THAT([&] { dtypes.backward(); }, ThrowsMessage<CheckpointError>(HasSubstr("saved tensor 2 of 2")));
    // Without the check.
    CheckpointOptions options;
    options.check = false;
    runs = 0;
    checkpoint(
        options, [&](const at::Tensor& a) { return ++runs == 1 ? a.sin() : a.to(at::kDouble).sin(); }, x)
        .sum()
        .backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

TEST(CheckpointErrors, AnInputModifiedInPlace) {
  const auto program = [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3});
    const auto y = x * 2;
    const auto z = call([](const at::Tensor& a) { return a.sin(); }, y);
    y.add_(1);
    log.attempt("backward", [&] { z.sum().backward(); });
    log.show("x.grad", x.grad());
  };
  expect_same_with_checkpoints(3, program, Takeover::Any);
}

TEST(CheckpointErrors, AParameterModifiedInPlace) {
  on_both_engines([] {
    const auto x = leaf({3, 3}), w = leaf({3, 3});
    const auto loss = checkpoint([w](const at::Tensor& a) { return a.mm(w).tanh(); }, x).sum();
    {
      const at::NoGradGuard no_grad;
      w.add_(1);
    }
    EXPECT_THAT([&] { loss.backward(); },
                ThrowsMessage<c10::Error>(HasSubstr("has been modified by an inplace operation: [CPUFloatType [3, 3]] is at version 2; "
                                                    "expected version 1 instead")));
  });
}

TEST(CheckpointErrors, AWriteToWhatTheFunctionHasSaved) {
  const auto program = [](Log& log, int, const Checkpoints& call) {
    const auto x = leaf({3});
    // The write comes before the last saved tensor, so that the recomputation reaches it.
    const auto z = call(
        [](const at::Tensor& a) {
          const auto b = a.exp();
          const auto c = b.sin();
          b.add_(1);
          return c.cos();
        },
        x);
    log.attempt("backward", [&] { z.sum().backward(); });
  };
  at::manual_seed(1);
  Log with, without;
  program(without, 0, {false});
  program(with, 0, {true});
  EXPECT_THAT(without.events()[0], HasSubstr("modified by an inplace operation"));
  EXPECT_THAT(with.events()[0], HasSubstr("modified by an inplace operation"));
}

TEST(CheckpointErrors, TheForwardThrows) {
  on_both_engines([] {
    const auto x = leaf({3});
    at::Tensor half;
    const auto function = [&](const at::Tensor& a) -> at::Tensor {
      half = a.sin().exp();
      throw std::runtime_error("the function's own words");
    };
    EXPECT_THAT([&] { checkpoint(function, x); }, ThrowsMessage<std::runtime_error>("the function's own words"));
    EXPECT_FALSE(has_hooks());
    x.sin().sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
    // The backward of its earlier results works: the recomputation ends before the error.
    x.mutable_grad() = at::Tensor();
    half.sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().sin().exp() * x.detach().cos()));
  });
}

TEST(CheckpointErrors, TheRecomputationThrows) {
  on_both_engines([] {
    const auto x = leaf({3});
    int runs = 0;
    const auto loss = checkpoint(
                          [&](const at::Tensor& a) {
                            const auto y = at::dropout(a.sin(), 0.5, true).exp();
                            if (++runs == 2) throw std::runtime_error("not the second time");
                            return y.exp();
                          },
                          x)
                          .sum();
    at::manual_seed(5);
    const auto expected = at::rand({2});
    at::manual_seed(5);
    EXPECT_THAT([&] { loss.backward({}, /*retain_graph=*/true); }, ThrowsMessage<std::runtime_error>("not the second time"));
    EXPECT_FALSE(has_hooks());
    EXPECT_TRUE(at::rand({2}).equal(expected));
    // It may work the next time: no state is half changed.
    loss.backward();
    EXPECT_EQ(runs, 3);
    EXPECT_TRUE(x.grad().defined());
  });
}

TEST(CheckpointErrors, CodeThatCatchesAllExceptionsDoesNotHideTheEnd) {
  on_both_engines([] {
    const auto x = leaf({3});
    checkpoint(
        [](const at::Tensor& a) {
          at::Tensor y = a.sin();
          try {
            y = y.exp();
          } catch (...) {
          }
          return y;
        },
        x)
        .sum()
        .backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos() * x.detach().sin().exp()));
  });
}

TEST(CheckpointErrors, HooksThatAreDisabled) {
  at::SavedTensorDefaultHooks::disable("no hooks here");
  const auto x = leaf({3});
  EXPECT_THAT([&] { checkpoint([](const at::Tensor& a) { return a.sin(); }, x); }, ThrowsMessage<c10::Error>(HasSubstr("no hooks here")));
  EXPECT_THAT([] { const OffloadToHost offload; }, ThrowsMessage<c10::Error>(HasSubstr("no hooks here")));
  at::SavedTensorDefaultHooks::enable();
  EXPECT_FALSE(has_hooks());
}

}  // namespace
}  // namespace hindcast::tests
