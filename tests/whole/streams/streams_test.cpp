// Backwards whose nodes are on an accelerator: the stock engine's gradients, hooks on the same streams, and no read of memory before it is
// written.

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "capture/graph/replay_check.h"
#include "tests/support/fake_device.h"
#include "tests/support/log_capture.h"
#include "tests/support/same_grads.h"
#include "tests/whole/streams/two_engines.h"

namespace hindcast::tests {
namespace {

class Streams : public ::testing::Test {
 protected:
  void SetUp() override { install_fake_device(); }
};

TEST_F(Streams, AnAccessWithoutAnEventIsFound) {
  const auto x = leaf(1, fake()).detach();
  at::Tensor y;
  {
    const c10::StreamGuard guard(stream(1));
    y = x.sin();
  }
  take_unordered();
  y.cos();
  EXPECT_EQ(take_unordered().size(), 1U);
  order(stream(1), stream(0));
  y.cos();
  EXPECT_EQ(take_unordered().size(), 0U);
}

TEST_F(Streams, MemoryFreedBelowAReaderIsFound) {
  for (const bool is_told : {false, true}) {
    auto x = leaf(1, fake()).detach();
    order(stream(0), stream(1));
    {
      const c10::StreamGuard guard(stream(1));
      x.cos();
    }
    if (is_told) c10::impl::VirtualGuardImpl(at::kPrivateUse1).recordDataPtrOnStream(x.storage().data_ptr(), stream(1));
    take_unordered();
    x.reset();
    EXPECT_EQ(take_unordered().size(), is_told ? 0U : 1U);
  }
}

TEST_F(Streams, OneDevice) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    auto y = x.mm(w).tanh();
    seen.hook(y, "y");
    (y * x).sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

TEST_F(Streams, OneDeviceWithoutHooks) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    (x.mm(w).tanh() * x).sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

TEST_F(Streams, TheSecondDevice) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake(1)), w = leaf(2, fake(1));
    auto y = x.mm(w).tanh();
    seen.hook(y, "y");
    seen.hook(w, "w");
    (y * x).sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

// The caller's stream differs from the forward's, and reads `.grad` after backward().
void on_a_side_stream(Seen& seen, bool has_hooks, bool is_caller_there) {
  const auto x = leaf(1, fake()), w = leaf(2, fake());
  order(stream(0), stream(1));
  at::Tensor loss;
  {
    const c10::StreamGuard guard(stream(1));
    auto y = x.mm(w).tanh();
    if (has_hooks) seen.hook(y, "y");
    if (has_hooks) seen.hook(x, "x");
    loss = (y * x).sum();
    if (is_caller_there) loss.backward();
  }
  if (!is_caller_there) loss.backward();
  if (is_caller_there) order(stream(1), stream(0));
  seen.show(x.grad());
  seen.show(w.grad());
}
TEST_F(Streams, ASideStream) {
  for (const bool has_hooks : {false, true}) {
    for (const bool is_caller_there : {false, true}) {
      expect_same([&](Seen& seen) { on_a_side_stream(seen, has_hooks, is_caller_there); });
    }
  }
}

void on_two_streams(Seen& seen, bool has_hooks) {
  const auto x = leaf(1, fake()), w = leaf(2, fake());
  order(stream(0), stream(1));
  order(stream(0), stream(2));
  at::Tensor a, b;
  {
    const c10::StreamGuard guard(stream(1));
    a = x.mm(w).tanh();
  }
  {
    const c10::StreamGuard guard(stream(2));
    b = (w * x).sin();
  }
  if (has_hooks) {
    seen.hook(a, "a");
    seen.hook(b, "b");
    seen.hook(x, "x");
  }
  order(stream(1), stream(0));
  order(stream(2), stream(0));
  (a * b).sum().backward();
  seen.show(x.grad());
  seen.show(w.grad());
}
TEST_F(Streams, TwoStreams) {
  for (const bool has_hooks : {false, true}) {
    expect_same([&](Seen& seen) { on_two_streams(seen, has_hooks); });
  }
}

// The leaf's AccumulateGrad has the stream on which the leaf was used first.
TEST_F(Streams, ALeafUsedOnManyStreams) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake());
    at::Tensor sum;
    std::vector<at::Tensor> parts;  // until the host has waited for those who read them
    for (const int id : {3, 1, 2, 0}) {
      order(stream(0), stream(id));
      at::Tensor& part = parts.emplace_back();
      {
        const c10::StreamGuard guard(stream(id));
        part = (x * (id + 1)).sin();
      }
      order(stream(id), stream(0));
      sum = sum.defined() ? sum + part : part;
    }
    seen.hook(x, "x");
    sum.sum().backward();
    seen.show(x.grad());
  });
}

TEST_F(Streams, TwoDevices) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake(0)), w = leaf(2, fake(1));
        auto y = x.sin();
        auto z = y.to(fake(1)) * w;
        seen.hook(y, "y");
        seen.hook(z, "z");
        seen.hook(w, "w");
        z.tanh().sum().backward();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.in_any_order = true});
}

TEST_F(Streams, TwoDevicesThereAndBackOnSideStreams) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake(0)), w = leaf(2, fake(1));
        order(stream(0), stream(1));
        order(stream(0, 1), stream(2, 1));
        at::Tensor loss;
        {
          const c10::MultiStreamGuard guard(std::vector<c10::Stream>{stream(1, 0), stream(2, 1)});
          auto y = x.sin();
          auto z = (y.to(fake(1)) * w).tanh();
          seen.hook(z, "z");
          auto back = z.to(fake(0)) * y;
          seen.hook(back, "back");
          loss = back.sum();
        }
        loss.backward();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.in_any_order = true});
}

// A device's thread uses the default streams of the other devices, whatever the caller's are.
TEST_F(Streams, TheCallersStreamsOfOtherDevices) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake(0)), w = leaf(2, fake(1)), c = leaf(3, at::kCPU);
        order(stream(0, 1), stream(2, 1));
        const c10::StreamGuard guard(stream(2, 1));
        auto y = x.sin();
        auto z = c * y.sum().to(at::kCPU);
        seen.hook(x, "x");
        seen.hook(y, "y");
        seen.hook(z, "z");
        seen.hook(c, "c");
        z.sum().backward();
        seen.show(x.grad());
        seen.show(c.grad());
      },
      {.in_any_order = true});
}

// The first of two gradients that are added is a view, whose memory nobody else holds. The stock engine keeps its base and creates a new
// tensor.
TEST_F(Streams, ASumOfAView) {
  for (const int side : {0, 1}) {
    expect_same([side](Seen& seen) {
      const auto x = leaf(1, fake(), {4, 1});
      auto y = x * 2;
      at::Tensor a = on_side(side, [&] { return y.sin(); });
      auto b = y.t().sin();
      seen.hook(y, "y");
      y.register_hook([&](const at::Tensor& gradient) { seen.note("strides " + std::to_string(gradient.stride(1))); });
      torch::autograd::backward({b, a}, {at::ones_like(b), at::ones_like(a)});
      seen.show(x.grad());
    });
  }
}

// Two nodes get one gradient. The first reads it; at the second, another gradient is added to its memory, on another stream. The stock
// engine does not wait for the reader.
TEST_F(Streams, ASumInMemoryThatAnotherStreamReads) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake()), w = leaf(2, fake());
        at::Tensor a, b, c;
        order(stream(0), stream(2));
        {
          const c10::StreamGuard guard(stream(2));
          b = x * 1;
        }
        order(stream(2), stream(0));
        c = b.cos();
        order(stream(0), stream(1));
        {
          const c10::StreamGuard guard(stream(1));
          a = x.sin();
        }
        order(stream(1), stream(0));
        ((a + b) * w + c).sum().backward();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.stock_is_ordered = false});
}

// One gradient for two inputs: at the first it is a term of a sum; at the second another gradient is added to its memory, on another
// stream. The stock engine does not wait for the sum.
TEST_F(Streams, ASumInMemoryThatAnotherSumReads) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake()), w = leaf(2, fake());
        const at::Tensor u = on_side(1, [&] { return x.sin(); }), v = on_side(2, [&] { return x.cos(); });
        const at::Tensor c = v.exp(), t = u + v, d = u.cos();
        (t * w + c + d).sum().backward();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.stock_is_ordered = false});
}

TEST_F(Streams, ScalarsOnTheCpu) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), s = leaf(2, at::kCPU, {});
    auto y = (x * s).tanh();
    seen.hook(s, "s");
    (y * y).sum().backward();
    seen.show(x.grad());
    seen.show(s.grad());
  });
}

TEST_F(Streams, ALossOnTheCpu) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), c = leaf(3, at::kCPU);
    order(stream(0), stream(1));
    at::Tensor y;
    {
      const c10::StreamGuard guard(stream(1));
      y = x.tanh().sum();
      seen.hook(y, "y");
      y = y.to(at::kCPU);
    }
    auto z = (c * y).exp();
    seen.hook(z, "z");
    seen.hook(c, "c");
    z.sum().backward();
    seen.show(x.grad());
    seen.show(c.grad());
  });
}

TEST_F(Streams, ManyRoots) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake(0)), w = leaf(2, fake(1)), c = leaf(3, at::kCPU);
        order(stream(0), stream(1));
        at::Tensor a;
        {
          const c10::StreamGuard guard(stream(1));
          a = x.sin();
        }
        const auto g = leaf(4, fake(0)).detach(), h = leaf(5, fake(1)).detach(), k = leaf(6, at::kCPU).detach();
        torch::autograd::backward({a, (w * w), c.exp(), a}, {g, h, k, g});
        seen.show(x.grad());
        seen.show(w.grad());
        seen.show(c.grad());
      },
      {.in_any_order = true});
}

TEST_F(Streams, Grad) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake()), u = leaf(3, fake());
    order(stream(0), stream(1));
    order(stream(0), stream(2));
    at::Tensor y, z;
    {
      const c10::StreamGuard guard(stream(1));
      y = x.mm(w).tanh();
    }
    order(stream(1), stream(2));
    {
      const c10::StreamGuard guard(stream(2));
      z = (y * u).sin();
    }
    order(stream(2), stream(0));
    const auto loss = z.sum();
    for (const at::Tensor& gradient : torch::autograd::grad({loss}, {y, x})) seen.show(gradient);
  });
}

TEST_F(Streams, BackwardToSomeInputs) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    at::Tensor y = on_side(1, [&] { return x.mm(w).tanh(); });
    torch::autograd::backward({(y * w).sum()}, {}, std::nullopt, false, {w});
    seen.show(w.grad());
    seen.show(x.grad());
  });
}

TEST_F(Streams, AddsToGradientsOfAnotherStream) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake());
        (x * x).sum().backward();
        order(stream(0), stream(1));
        at::Tensor loss;
        {
          const c10::StreamGuard guard(stream(1));
          loss = x.sin().sum();
        }
        loss.backward();
        seen.show(x.grad());
      },
      {.backwards = 2});
}

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, Seen* seen) {
    ctx->saved_data["seen"] = reinterpret_cast<int64_t>(seen);
    ctx->save_for_backward({x});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& gradients) {
    reinterpret_cast<Seen*>(ctx->saved_data["seen"].toInt())->note("Twice at " + current_streams());
    return {gradients[0] * 2 + ctx->get_saved_variables()[0] * 0, {}};
  }
};

TEST_F(Streams, OpaqueNodes) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    at::Tensor y = on_side(1, [&] { return Twice::apply(x.mm(w), &seen); });
    auto z = Twice::apply((y * x).sin(), &seen);
    z.sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

struct NotePostHook : torch::autograd::FunctionPostHook {
  explicit NotePostHook(Seen& where) : seen(where) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) override {
    seen.note("post-hook at " + current_streams());
    return outputs;
  }
  Seen& seen;
};

TEST_F(Streams, HooksOfAllKinds) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    order(stream(0), stream(1));
    at::Tensor y;
    {
      const c10::StreamGuard guard(stream(1));
      y = x.mm(w);
      y.retain_grad();
      y.grad_fn()->add_post_hook(std::make_unique<NotePostHook>(seen));
    }
    order(stream(1), stream(0));
    const auto handle = on_grad_ready(w, [&](const at::Tensor&) { seen.note("ready at " + current_streams()); });
    auto z = (y * w).tanh();
    torch::autograd::impl::grad_accumulator(w)->add_post_hook(std::make_unique<NotePostHook>(seen));
    seen.hook(z, "z");
    z.sum().backward();
    seen.show(y.grad());
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

TEST_F(Streams, ABackwardInAHook) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake()), w = leaf(2, fake());
        order(stream(0), stream(1));
        at::Tensor y;
        {
          const c10::StreamGuard guard(stream(1));
          y = x.mm(w);
        }
        y.register_hook([&](const at::Tensor& gradient) {
          const at::AutoGradMode grad_mode(true);
          const auto inner = w.detach().requires_grad_();
          seen.hook(inner, "inner");
          (inner * gradient.detach()).sin().sum().backward();
          return gradient + inner.grad();
        });
        order(stream(1), stream(0));
        y.tanh().sum().backward();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.fallback = "InsideHook"});
}

TEST_F(Streams, TwiceThroughOneGraph) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake()), w = leaf(2, fake());
        at::Tensor y = on_side(1, [&] { return x.mm(w).tanh(); });
        const auto loss = (y * x).sum();
        loss.backward({}, /*retain_graph=*/true);
        loss.backward();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.backwards = 2});
}

TEST_F(Streams, CreateGraphIsLeftToTheStockEngine) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake());
        const auto gradient = torch::autograd::grad({x.sin().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
        seen.show(gradient);
        gradient.sum().backward();
        seen.show(x.grad());
      },
      {.fallback = "CreateGraph"});
}

TEST_F(Streams, WithoutDeviceThreads) {
  struct OneThread {
    OneThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
    ~OneThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(true); }
  };
  expect_same([](Seen& seen) {
    const OneThread one_thread;
    const auto x = leaf(1, fake(0)), w = leaf(2, fake(1));
    order(stream(0, 1), stream(2, 1));
    const c10::StreamGuard guard(stream(2, 1));
    auto y = (x.sin().to(fake(1)) * w);
    auto z = y.to(fake(0)) * x;
    seen.hook(y, "y");
    seen.hook(z, "z");
    z.sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

// The hook's result has other strides from the second run on, so that another continuation of the backward starts there.
TEST_F(Streams, AHookThatChangesItsResult) {
  for (const int side : {0, 1}) {
    expect_same(
        [side](Seen& seen) {
          const auto x = leaf(1, fake()), w = leaf(2, fake());
          at::Tensor y = on_side(side, [&] { return x.mm(w); });
          y.register_hook([&](const at::Tensor& gradient) {
            seen.note(current_streams());
            return seen.run() == 0 ? gradient.clone() : gradient.t().contiguous().t();
          });
          order(stream(0), stream(2));
          at::Tensor z;  // its gradients wait at the leaves meanwhile
          {
            const c10::StreamGuard guard(stream(side == 0 ? 0 : 2));
            z = (x * w).sin();
          }
          order(stream(2), stream(0));
          (y * z).tanh().sum().backward();
          seen.show(x.grad());
          seen.show(w.grad());
        },
        {.always_captures = true});
  }
}

TEST_F(Streams, OtherSizes) {
  for (const int side : {0, 1}) {
    expect_same(
        [side](Seen& seen) {
          const auto x = leaf(1, fake(), {2 + seen.run(), 4}), w = leaf(2, fake());
          at::Tensor y = on_side(side, [&] { return x.mm(w).tanh(); });
          y.mm(w).sin().sum().backward();
          seen.show(x.grad());
          seen.show(w.grad());
        },
        {.always_captures = true});
  }
}

TEST_F(Streams, AHookThatThrows) {
  expect_same(
      [](Seen& seen) {
        const auto x = leaf(1, fake()), w = leaf(2, fake());
        at::Tensor y = on_side(1, [&] { return x.mm(w); });
        y.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("thrown by a hook"); });
        try {
          (y * x).sum().backward();
        } catch (const std::runtime_error& error) {
          seen.note(std::string(error.what()).substr(0, 16));
        }
        synchronize_fake_device();
        seen.show(x.grad());
        seen.show(w.grad());
      },
      {.always_captures = true});
}

void leave_a_stream_behind() { c10::impl::VirtualGuardImpl(at::kPrivateUse1).exchangeStream(stream(7)); }

// The stock engine runs the rest of the hook's node on that stream, and waits for nothing.
TEST_F(Streams, AHookThatLeavesAnotherStreamBehind) {
  for (const int side : {0, 1}) {
    expect_same(
        [side](Seen& seen) {
          const auto x = leaf(1, fake()), w = leaf(2, fake());
          at::Tensor y = on_side(side, [&] { return x.mm(w); });
          y.register_hook([](const at::Tensor&) { leave_a_stream_behind(); });
          (y * x).sum().backward();
          seen.show(x.grad());
          seen.show(w.grad());
        },
        {.stock_is_ordered = false});
  }
}

struct LeavesAStreamBehind : torch::autograd::Function<LeavesAStreamBehind> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, const torch::autograd::variable_list& gradients) {
    auto result = gradients[0] * 2;
    leave_a_stream_behind();
    return {result};
  }
};

TEST_F(Streams, ANodeThatLeavesAnotherStreamBehind) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    (LeavesAStreamBehind::apply(x.mm(w)) * x).sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

TEST_F(Streams, ALeafsHookThatLeavesAnotherStreamBehind) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    const auto handle = on_grad_ready(w, [](const at::Tensor&) { leave_a_stream_behind(); });
    (x.sin() * w).sum().backward();
    seen.show(x.grad());
    seen.show(w.grad());
  });
}

// The report on them is read, and recomputed, after the backward.
TEST_F(Streams, InfinitiesAreFoundOnAllStreams) {
  reset();
  LogCapture logs("");
  for (int i = 0; i < 2; ++i) {
    const auto guard = enable({.compiler = compilers::eager(), .nan_guard = true});
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    order(stream(0), stream(1));
    at::Tensor y;
    {
      const c10::StreamGuard side(stream(1));
      y = (x * 0).sqrt();
    }
    order(stream(1), stream(0));
    take_unordered();
    (y * w).sum().backward();
    EXPECT_EQ(take_unordered(), std::vector<std::string>());
    synchronize_fake_device();
  }
  EXPECT_EQ(stats().non_finite_backwards, 2U);
  EXPECT_EQ(stats().hits, 1U);
  EXPECT_EQ(logs.count("of SqrtBackward0"), 2U) << logs.text();
}

// Copies for checking a graph are created on the streams of nodes, and read on another one.
TEST_F(Streams, ChecksWaitForTheirCopies) {
  capture::ReplayCheck check;
  {
    const c10::StreamGuard guard(stream(1));
    check.inputs.emplace_back(capture::ValueId{0}, at::ones({4}, fake()) * 2);
  }
  take_unordered();
  {
    const capture::ReplayOnAccelerator alone(check.accelerator());
    check.inputs[0].second.sin();
  }
  check = {};
  EXPECT_EQ(take_unordered(), std::vector<std::string>());
}

TEST_F(Streams, FinalCallbacksReadGradientsOnTheCallersStream) {
  expect_same([](Seen& seen) {
    const auto x = leaf(1, fake());
    order(stream(0), stream(1));
    at::Tensor loss;
    {
      const c10::StreamGuard guard(stream(1));
      auto y = x.sin();
      y.register_hook([&](const at::Tensor&) {
        torch::autograd::Engine::get_default_engine().queue_callback([&] {
          seen.note("callback at " + current_streams());
          seen.show(x.grad());
        });
      });
      loss = y.sum();
    }
    loss.backward();
    seen.show(x.grad());
  });
}

TEST_F(Streams, NothingWaitsWhereThereIsOneStream) {
  const auto guard = enable(compilers::eager());
  for (int i = 0; i < 2; ++i) {
    const auto x = leaf(1, fake()), w = leaf(2, fake());
    const auto loss = (x.mm(w).tanh() * x).sum();
    take_event_counts();
    loss.backward();
    const EventCounts events = take_event_counts();
    EXPECT_EQ(events.recorded, 0);
    EXPECT_EQ(events.waited, 0);
  }
}

// On a thread of the stock engine: a guard there is inside of a backward that is not hindcast's.
TEST_F(Streams, ABackwardOnADeviceThreadIsLeftToTheStockEngine) {
  reset();
  const auto x = leaf(1, fake()), w = leaf(2, fake());
  auto y = x.sin();
  const auto here = std::this_thread::get_id();
  bool is_elsewhere = false;
  y.register_hook([&](const at::Tensor& gradient) {
    is_elsewhere = std::this_thread::get_id() != here;
    const at::AutoGradMode grad_mode(true);
    const auto guard = enable(compilers::eager());
    w.cos().sum().backward();
    return gradient;
  });
  y.sum().backward();
  EXPECT_TRUE(is_elsewhere);
  EXPECT_EQ(first_difference(to_cpu(w.grad()), -to_cpu(w).sin()), "");
  EXPECT_EQ(stats().backwards, 0U);
  EXPECT_EQ(stats().fallbacks_by_reason, (std::map<std::string, uint64_t>{{"InsideHook", 1}}));
}

TEST_F(Streams, TheDeviceIsInTheKey) {
  reset();
  const auto guard = enable(compilers::eager());
  for (const int device : {0, 1, 0, 1}) {
    const auto x = leaf(1, fake(device));
    x.sin().sum().backward();
  }
  EXPECT_EQ(stats().misses_by_reason, (std::map<std::string, uint64_t>{{"NewNode", 2}}));
  EXPECT_EQ(stats().hits, 2U);
}

// As in capture/backward/libtorch_access.h.
template <class Tag, typename Tag::Pointer kMember>
struct Grant {
  friend constexpr typename Tag::Pointer pointer_to(Tag) { return kMember; }
};
struct BlasOfContext {
  using Pointer = at::BlasBackend at::Context::*;
  friend constexpr Pointer pointer_to(BlasOfContext);
};
struct LinalgOfContext {
  using Pointer = at::LinalgBackend at::Context::*;
  friend constexpr Pointer pointer_to(LinalgOfContext);
};
template struct Grant<BlasOfContext, &at::Context::blas_preferred_backend>;
template struct Grant<LinalgOfContext, &at::Context::linalg_preferred_backend>;

TEST_F(Streams, SwitchesOfTheAcceleratorAreInTheKey) {
  reset();
  const auto guard = enable(compilers::eager());
  auto& context = at::globalContext();
  const auto backward_at = [](at::Device device) { leaf(1, device).sin().sum().backward(); };
  uint64_t graphs = 0;
  const auto expect_another = [&](const char* what, const auto& set) {
    set(true);
    backward_at(fake());
    backward_at(at::kCPU);
    EXPECT_EQ(stats().unique_graphs, ++graphs) << what;
    set(false);
    backward_at(fake());
    EXPECT_EQ(stats().unique_graphs, graphs) << what;
  };
  backward_at(fake());
  backward_at(at::kCPU);
  graphs = stats().unique_graphs;
  EXPECT_EQ(graphs, 2U);
  expect_another("cuDNN", [&](bool on) { context.setUserEnabledCuDNN(!on); });
  expect_another("cuDNN's benchmark", [&](bool on) { context.setBenchmarkCuDNN(on); });
  expect_another("deterministic cuDNN", [&](bool on) { context.setDeterministicCuDNN(on); });
  expect_another("float16 reductions", [&](bool on) { context.setAllowFP16ReductionCuBLAS(!on); });
  expect_another("bfloat16 reductions", [&](bool on) { context.setAllowBF16ReductionCuBLAS(!on); });
  expect_another("float16 accumulation", [&](bool on) { context.setAllowFP16AccumulationCuBLAS(on); });
  expect_another("cuDNN attention", [&](bool on) { context.setSDPUseCuDNN(!on); });
  expect_another("TF32 of matrix products", [&](bool on) {
    context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL,
                                on ? at::Float32Precision::TF32 : at::Float32Precision::NONE);
  });
  expect_another("TF32 of convolutions", [&](bool on) {
    context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::CONV,
                                on ? at::Float32Precision::IEEE : at::Float32Precision::TF32);
  });
  expect_another("TF32 of recurrent nets", [&](bool on) {
    context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::RNN, on ? at::Float32Precision::IEEE : at::Float32Precision::TF32);
  });
  expect_another("cuDNN's algorithms that are tried", [&](bool on) { context.setBenchmarkLimitCuDNN(on ? 3 : 10); });
  expect_another("FlashAttention 3", [&](bool on) { context.setSDPUseFA3(on); });
  expect_another("attention of other libraries", [&](bool on) { context.setSDPUseOverrideable(!on); });
  expect_another("reductions of attention", [&](bool on) { context.setAllowFP16BF16ReductionMathSDP(on); });
  const auto order = context.sDPPriorityOrder();
  expect_another("the order of attentions", [&](bool on) {
    std::vector<int64_t> ranks(order.size());
    std::transform(order.begin(), order.end(), ranks.begin(), [](at::SDPBackend backend) { return static_cast<int64_t>(backend); });
    if (on) std::swap(ranks[0], ranks[2]);
    context.setSDPPriorityOrder(ranks);
  });
  expect_another("autocast", [&](bool on) { at::autocast::set_autocast_enabled(at::kPrivateUse1, on); });
  // Their setters refuse what this LibTorch lacks without a card.
  expect_another("the library of matrix products",
                 [&](bool on) { context.*pointer_to(BlasOfContext{}) = on ? at::BlasBackend::Cublaslt : at::BlasBackend::Cublas; });
  expect_another("the library of linear algebra",
                 [&](bool on) { context.*pointer_to(LinalgOfContext{}) = on ? at::LinalgBackend::Magma : at::LinalgBackend::Default; });
}

}  // namespace
}  // namespace hindcast::tests
