// Backwards on a card, taken over and run by ATen: the stock engine's gradients to the bit, and hooks on its streams. tests/whole/streams
// has the same on a device without hardware, where missing waits are detected; here the work is long enough for a race to show in the
// numbers.

#include "tests/gpu/on_gpu.h"
#include "tests/support/same_grads.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

using Takeover = OnGpu;

c10::impl::VirtualGuardImpl cuda() { return c10::impl::VirtualGuardImpl(at::kCUDA); }
at::Device device() { return {at::kCUDA, 0}; }
c10::Stream current() { return cuda().getStream(device()); }

/// The same streams in every run, so that notes are equal.
c10::Stream side(size_t i) {
  static const std::vector<c10::Stream> streams = {cuda().getStreamFromGlobalPool(device()), cuda().getStreamFromGlobalPool(device())};
  return streams[i];
}

void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(at::kCUDA);
  event.record(earlier);
  later.wait(event);
}

struct Seen {
  std::vector<std::string> notes;
  std::vector<at::Tensor> tensors;

  void hook(const at::Tensor& tensor, const std::string& name) {
    tensor.register_hook([this, name](const at::Tensor& gradient) {
      notes.push_back(name + " on " + std::to_string(current().id()));
      return gradient * 2;
    });
  }
  void show(const at::Tensor& tensor) { tensors.push_back(tensor.cpu()); }
};

at::Tensor leaf(uint64_t seed, at::Device where = device(), c10::IntArrayRef sizes = {1024, 1024}) {
  return (at::randn(sizes, at::detail::createCPUGenerator(seed)) / 32).to(where).requires_grad_();
}

void expect_same(const std::function<void(Seen&)>& program) {
  constexpr int kRuns = 4;
  const auto run = [&] {
    Seen seen;
    const c10::Stream before = current();
    program(seen);
    EXPECT_EQ(current(), before);
    cuda().synchronizeDevice(0);
    return seen;
  };
  const Seen stock = run();
  reset();
  const auto guard = enable(compilers::eager());
  for (int i = 0; i < kRuns; ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    const Seen ours = run();
    EXPECT_EQ(stock.notes, ours.notes);
    ASSERT_EQ(stock.tensors.size(), ours.tensors.size());
    for (size_t t = 0; t < stock.tensors.size(); ++t) EXPECT_EQ(first_difference(stock.tensors[t], ours.tensors[t]), "") << t;
  }
  EXPECT_GE(stats().hits, static_cast<uint64_t>(kRuns - 1));
  EXPECT_TRUE(stats().fallbacks_by_reason.empty()) << report();
}

TEST_F(Takeover, OneStream) {
  for (const bool has_hooks : {false, true}) {
    expect_same([has_hooks](Seen& seen) {
      const auto x = leaf(1), w = leaf(2);
      auto y = x.mm(w).tanh();
      if (has_hooks) seen.hook(y, "y");
      (y.mm(w) * x).sum().backward();
      seen.show(x.grad());
      seen.show(w.grad());
    });
  }
}

TEST_F(Takeover, ASideStreamAndACallerElsewhere) {
  for (const bool has_hooks : {false, true}) {
    expect_same([has_hooks](Seen& seen) {
      const auto x = leaf(1), w = leaf(2);
      order(current(), side(0));
      at::Tensor loss;
      {
        const c10::StreamGuard guard(side(0));
        auto y = x.mm(w).tanh();
        for (int i = 0; i < 8; ++i) y = y.mm(w);
        if (has_hooks) seen.hook(y, "y");
        loss = (y * x).sum();
      }
      order(side(0), current());
      loss.backward();
      seen.show(x.grad());
      seen.show(w.grad());
    });
  }
}

// Gradients cross in both directions while memory of one stream is freed and reused: a missing wait, or memory that the allocator was not
// told of, gives other numbers.
TEST_F(Takeover, ManyStepsOnTwoStreams) {
  for (const bool has_hooks : {false, true}) {
    expect_same([has_hooks](Seen& seen) {
      const auto x = leaf(1), w = leaf(2), u = leaf(3);
      for (int step = 0; step < 6; ++step) {
        order(current(), side(0));
        order(current(), side(1));
        at::Tensor a, b;
        {
          const c10::StreamGuard guard(side(0));
          a = x.mm(w).tanh().mm(u);
        }
        {
          const c10::StreamGuard guard(side(1));
          b = (w * x).sin().mm(u).mm(x);
        }
        if (has_hooks) seen.hook(a, "a");
        if (has_hooks) seen.hook(b, "b");
        order(side(0), current());
        order(side(1), current());
        (a * b).sum().backward();
        order(current(), side(0));
        order(current(), side(1));
      }
      for (const at::Tensor& one : {x, w, u}) seen.show(one.grad());
    });
  }
}

TEST_F(Takeover, ScalarsAndALossOnTheCpu) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1), s = leaf(2, at::kCPU, {}), c = leaf(3, at::kCPU, {4});
    auto y = ((x * s).mm(x)).sum().to(at::kCPU);
    (c * y).sum().backward();
    for (const at::Tensor& one : {x, s, c}) seen.show(one.grad());
  });
}

TEST_F(Takeover, GradientsThatAreAsked) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1), w = leaf(2);
    order(current(), side(1));
    at::Tensor y;
    {
      const c10::StreamGuard guard(side(1));
      y = x.mm(w).tanh();
    }
    order(side(1), current());
    for (const at::Tensor& one : torch::autograd::grad({(y * w).sum()}, {y, x, w})) seen.show(one);
  });
}

TEST_F(Takeover, OpsOfANetwork) {
  at::globalContext().setDeterministicCuDNN(true);
  expect_same([](Seen& seen) {
    const auto x = leaf(1, device(), {64, 8, 16, 16}), k = leaf(2, device(), {8, 8, 3, 3}), w = leaf(3, device(), {10, 2048});
    auto y = at::conv2d(x, k, {}, 1, 1).relu();
    y = at::layer_norm(y.flatten(1), {2048});
    const auto classes = at::arange(64, at::device(device()).dtype(at::kLong)).remainder(10);
    at::cross_entropy_loss(at::linear(y, w), classes).backward();
    for (const at::Tensor& one : {x, k, w}) seen.show(one.grad());
  });
  at::globalContext().setDeterministicCuDNN(false);
}

}  // namespace
}  // namespace hindcast::tests
