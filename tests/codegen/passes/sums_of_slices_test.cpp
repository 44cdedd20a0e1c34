// Gradients of slices that are added up.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "codegen/cpu/cost_model.h"
#include "codegen/passes/pipeline.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/kept_graphs.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::sums_of_slices_test {
namespace {

using Tensors = std::vector<at::Tensor>;

/// How often gradients of slices are added to a slice of their sum, and tensors of the full size are still created.
struct Found {
  size_t added = 0, whole = 0;
  bool operator==(const Found&) const = default;
};
std::ostream& operator<<(std::ostream& out, Found found) { return out << found.added << " added, " << found.whole << " whole"; }

template <class Backward>
Found found_in(const Backward& backward) {
  hindcast::reset();
  KeptGraphs kept;
  const auto guard = hindcast::enable(kept.compiler());
  backward();
  const auto optimised = codegen::optimise(kept.graphs.at(0), codegen::cpu::cost_model());
  Found found;
  for (const capture::Instr& instr : optimised.graph->instrs) {
    if (!instr.op) continue;
    const std::string& name = instr.op->operator_name().name;
    found.added += instr.kind == capture::InstrKind::Mutate && name == "aten::add_" && !instr.views.empty();
    found.whole += name == "aten::slice_backward" || name == "aten::select_backward";
  }
  return found;
}

/// Close to the stock engine with kernels; bit by bit through ATen, where there are no such sums because of the signs of zeros.
void expect_same(const std::function<Tensors(at::TensorOptions)>& program, NearGrads near = {}) {
  Options through_aten;
  through_aten.compiler = compilers::fused_through_aten();
  through_aten.async = false;
  EXPECT_TRUE(expect_same_grads(
      [&](uint64_t seed) {
        at::manual_seed(seed);
        return program(at::kFloat);
      },
      {1, 2, 3}, through_aten));
  expect_near_grads(program, near);
}

at::Tensor leaf_of(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

// All but the last step, or their gradients would be a stack.
at::Tensor byte_strides_of(const at::Tensor& x) {
  at::Tensor state = at::zeros_like(x.select(1, 0));
  for (int64_t t = 0; t < x.size(1) - 1; ++t) state = (state * 0.5 + x.select(1, t)).tanh();
  return state.sum();
}

TEST(SumsOfSlices, ALoopOverSteps) {
  EXPECT_EQ(found_in([] { byte_strides_of(leaf_of({3, 7, 4}) * 2).backward(); }), (Found{5, 1}));
  expect_same([](at::TensorOptions options) {
    const auto x = near_leaf({3, 7, 4}, options);
    byte_strides_of(x * 2).backward();
    return Tensors{x.grad()};
  });
}

// Negative indices, with a step, overlapping, one element, all of it, none of it.
TEST(SumsOfSlices, OfEveryKind) {
  expect_same([](at::TensorOptions options) {
    const auto x = near_leaf({7, 5}, options);
    const auto y = x.sigmoid();
    auto sum = y.slice(0, -3).sum() + (y.slice(0, 0, 7, 2) * 3).sum() + y.slice(1, 1, 4).square().sum();
    sum = sum + y.slice(0, 2, 3).sum() + y.slice(0, 0, 100).exp().sum() + y.slice(0, 4, 4).sum() + y.select(1, -1).square().sum();
    sum.backward();
    return Tensors{x.grad()};
  });
}

TEST(SumsOfSlices, WithAWholeGradientBetween) {
  EXPECT_EQ(found_in([] {
              const auto y = leaf_of({6, 4}) * 2;
              (y.select(0, 1).square().sum() + y.tanh().sum() + y.slice(0, 2, 4).square().sum()).backward();
            }),
            (Found{2, 0}));
  expect_same([](at::TensorOptions options) {
    const auto x = near_leaf({6, 4}, options);
    const auto y = x * 2;
    (y.select(0, 1).square().sum() + y.tanh().sum() + y.slice(0, 2, 4).square().sum()).backward();
    return Tensors{x.grad()};
  });
}

// The sum is the leaf's gradient, which accumulates; a leaf whose gradient one of the slices reads.
TEST(SumsOfSlices, OfALeaf) {
  expect_same(
      [](at::TensorOptions options) {
        const auto x = near_leaf({4, 5}, options), y = near_leaf({4, 5}, options);
        for (int i = 0; i < 2; ++i) {
          const auto loss =
              (x.select(0, 1) * x.select(0, 2)).sum() + (x.slice(1, 0, 2) * y.slice(1, 3)).square().sum() + x.select(1, 4).sum();
          loss.backward();
        }
        return Tensors{x.grad(), y.grad()};
      },
      {.misses = 2});
}

// A broadcast tensor has a layout that no sum has.
TEST(SumsOfSlices, WithABroadcastGradient) {
  expect_same([](at::TensorOptions options) {
    const auto x = near_leaf({4, 5}, options);
    const auto y = x.tanh();
    (y.sum() + y.select(0, 2).square().sum() + y.sum(0, true).square().sum()).backward();
    return Tensors{x.grad()};
  });
}

TEST(SumsOfSlices, SizesChange) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({at::randint(2, 5, {}).item<int64_t>(), 6, 4}, options);
        byte_strides_of(x * 2).backward();
        return Tensors{x.grad()};
      },
      {.fused_graphs = 2, .steps = 9, .misses = 2});
}

// A hook sees the sum of all that came before it, which must exist by then.
TEST(SumsOfSlices, NotAcrossAHook) {
  const auto hooked = [](at::TensorOptions options) {
    const auto x = near_leaf({4, 5}, options);
    const auto y = x * 2, part = y.select(0, 1);
    part.register_hook([](const at::Tensor& grad) { return grad * 2; });
    (part.square().sum() + y.select(0, 2).square().sum()).backward();
    return Tensors{x.grad()};
  };
  expect_same(hooked, {.misses = 1});
}

TEST(SumsOfSlices, VerifyAgrees) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  for (int step = 0; step < 3; ++step) byte_strides_of(leaf_of({3, 6, 4}) * -0.0).backward();  // all gradients are -0 and 0
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
  EXPECT_EQ(hindcast::stats().fused_graphs, 1U);
}

// Row 0 gets -0, to which the stock engine adds row 1's padding of 0.
TEST(SumsOfSlices, VerifyTakesNoSignOfAZeroForADifference) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  const auto y = leaf_of({3, 4}) * 2;
  ((y.select(0, 0) * -0.0).sum() + y.select(0, 1).sum()).backward();
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
}

// The derivative of sgn is a ZeroTensor, which cannot be written to.
TEST(SumsOfSlices, NotAddedToAZeroTensor) {
  expect_same([](at::TensorOptions options) {
    const at::Tensor x = near_leaf({7, 4}, options), weight = near_leaf({4, 5}, options);
    const at::Tensor y = x.matmul(weight),
                     loss = x.select(1, 1).sin().sum() + x.abs().sum() + y.abs().sum() + y.narrow(1, 1, 3).exp().sum();
    const at::Tensor gradient = torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    gradient.square().sum().backward();
    return Tensors{x.grad(), weight.grad()};
  });
}

}  // namespace
}  // namespace hindcast::tests::sums_of_slices_test
