// Gradients of slices that together cover a tensor.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen/cpu/cost_model.h"
#include "codegen/passes/pipeline.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"
#include "tests/support/kept_graphs.h"

namespace hindcast::tests::slices_to_concat_test {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The operators of the captured backward after the passes whose names relate to slices.
std::vector<std::string> slice_calls(const std::function<void()>& backward) {
  hindcast::reset();
  KeptGraphs kept;
  const auto guard = hindcast::enable(kept.compiler());
  backward();
  const auto optimised = codegen::optimise(kept.graphs.at(0), codegen::cpu::cost_model());
  std::vector<std::string> calls;
  for (const capture::Instr& instr : optimised.graph->instrs) {
    const std::string name = instr.op ? instr.op->operator_name().name : "";
    for (const char* known : {"aten::cat", "aten::stack", "aten::slice_backward", "aten::select_backward", "aten::add_"}) {
      if (name == known) calls.push_back(name);
    }
  }
  return calls;
}

using Calls = std::vector<std::string>;

at::Tensor leaf_of(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

int64_t some_size() { return at::randint(3, 9, {}).item<int64_t>(); }

// Like a policy's mean and log deviations, in any order and indexed from either end.
at::Tensor two_parts(const at::Tensor& x) {
  const auto y = x * 2;
  return (y.slice(-1, -3).exp() * y.slice(1, 0, 3).tanh()).sum();
}

at::Tensor byte_strides_of(const at::Tensor& x) {
  const auto y = x * 2;
  at::Tensor state = at::zeros_like(y.select(1, 0));
  for (int64_t t = 0; t < y.size(1); ++t) state = (state * 0.5 + y.select(1, t)).tanh();
  return state.sum();
}

TEST(SlicesToConcat, SlicesAreACat) {
  EXPECT_EQ(slice_calls([] { two_parts(leaf_of({5, 6})).backward(); }), Calls{"aten::cat"});
  EXPECT_EQ(calls_left([] { two_parts(leaf_of({5, 6})).backward(); }), Calls{});  // one kernel writes both parts
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({some_size(), 6}, options);
        two_parts(x).backward();
        return Tensors{x.grad()};
      },
      {.steps = 6, .misses = 2});
}

TEST(SlicesToConcat, SelectionsAreAStack) {
  EXPECT_EQ(slice_calls([] { byte_strides_of(leaf_of({3, 7, 4})).backward(); }), Calls{"aten::stack"});
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({some_size(), 7, 4}, options);
        byte_strides_of(x).backward();
        return Tensors{x.grad()};
      },
      {.steps = 6, .misses = 2});
}

// Of unequal sizes, of size 1, of a leaf itself, of a broadcast tensor; in float16; of complex numbers.
TEST(SlicesToConcat, OfEveryKind) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({7, 5}, options), leaf = near_leaf({4, 6}, options), single = near_leaf({3, 1}, options);
    const auto y = x.sigmoid(), z = single * 3;
    auto sum = y.slice(0, 0, 1).sum() + y.slice(0, 3).square().sum() + y.slice(0, 1, 3).exp().sum();
    sum = sum + leaf.slice(1, 0, 2).tanh().sum() + leaf.slice(1, 2, 100).sin().sum();
    sum = sum + z.select(1, -1).exp().sum() + z.square().sum();
    sum.backward();
    return Tensors{x.grad(), leaf.grad(), single.grad()};
  });
  EXPECT_EQ(slice_calls([] {
              const auto y = at::randn({4, 6}, at::kHalf).set_requires_grad(true) * 2;
              (y.slice(1, 0, 2).sum() + y.slice(1, 2).square().sum()).backward();
            }),
            Calls{"aten::cat"});
  EXPECT_EQ(slice_calls([] {
              const auto y = at::randn({4, 6}, at::kComplexFloat).set_requires_grad(true) * 2;
              (y.slice(1, 0, 2).sum() + y.slice(1, 2).square().sum()).abs().backward();
            }),
            Calls{"aten::cat"});
}

// Slices that overlap, leave gaps, use two dims, have steps, or cut a dim that changes.
TEST(SlicesToConcat, NotOfOtherSlices) {
  const auto calls = [](const std::function<at::Tensor(const at::Tensor&)>& loss) {
    return slice_calls([&] { loss(leaf_of({4, 6}) * 2).backward(); });
  };
  for (const auto& loss : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](const at::Tensor& y) { return y.slice(1, 0, 4).exp().sum() + y.slice(1, 3).exp().sum(); },
           [](const at::Tensor& y) { return y.slice(1, 0, 2).exp().sum() + y.slice(1, 3).exp().sum(); },
           [](const at::Tensor& y) { return y.slice(1, 0, 3).exp().sum() + y.slice(0, 0, 2).exp().sum(); },
           [](const at::Tensor& y) { return y.slice(1, 0, 6, 2).exp().sum() + y.slice(1, 1, 6, 2).exp().sum(); },
           [](const at::Tensor& y) { return y.slice(1, 0, 5).exp().sum() + y.select(1, 5).exp().sum(); },
           [](const at::Tensor& y) { return y.select(1, 0).exp().sum() + y.select(1, 0).exp().sum(); },
       }) {
    const Calls found = calls(loss);
    EXPECT_TRUE(std::find(found.begin(), found.end(), "aten::cat") == found.end());
    EXPECT_TRUE(std::find(found.begin(), found.end(), "aten::stack") == found.end());
  }
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({some_size(), 6}, options);
        const auto y = x * 2;
        (y.slice(0, 0, 3).exp().sum() + y.slice(0, 3).tanh().sum()).backward();
        return Tensors{x.grad()};
      },
      {.fused_graphs = 0, .steps = 6, .misses = 3});
}

// A hook sees the gradient of one slice, or the sum; user code runs between two.
TEST(SlicesToConcat, AtHooks) {
  double seen = 0;
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({5, 6}, options);
    const auto y = x * 2;
    const auto first = y.slice(1, 0, 3), last = y.slice(1, 3);
    first.register_hook([&](at::Tensor gradient) { seen = gradient.sum().item<double>(); });
    y.register_hook([](at::Tensor gradient) { return gradient * 2; });
    (first.exp() * last.tanh()).sum().backward();
    return Tensors{x.grad(), at::full({}, seen, options)};
  });
}

// Channels-last images: ATen's cat of such parts would be channels last too.
TEST(SlicesToConcat, OfImagesWithTheirChannelsLast) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({2, 4, 3, 5}, options);
    const auto y = (x * 2).contiguous(at::MemoryFormat::ChannelsLast);
    (y.slice(1, 0, 2).tanh() * y.slice(1, 2).sigmoid()).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(SlicesToConcat, VerifyAgrees) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  for (const int64_t rows : {3, 5, 6}) {
    two_parts(leaf_of({rows, 6})).backward();
    byte_strides_of(leaf_of({rows, 7, 4})).backward();
  }
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
}

}  // namespace
}  // namespace hindcast::tests::slices_to_concat_test
