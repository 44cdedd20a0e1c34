// Kernels that add to existing gradients of leaves.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "codegen/cpu/memory/empty_recycled.h"
#include "codegen/kernel/leaf_requests.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::leaf_grads_test {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Three leaves that get one gradient, one that gets another, a bias and the bias of a norm.
Tensors leaves_of(at::TensorOptions options, int64_t rows = 9) {
  return {near_leaf({rows, 24}, options), near_leaf({rows, 24}, options), near_leaf({rows, 24}, options),
          near_leaf({rows, 24}, options), near_leaf({24}, options),       near_leaf({24}, options)};
}

void backward(const Tensors& leaves) {
  const auto sum = leaves[0] + leaves[1] + leaves[2] + leaves[4];
  at::layer_norm((sum * leaves[3]).tanh() + sum.sigmoid() * 2, {24}, leaves[4] + 1, leaves[5]).pow(2).sum().backward();
}

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
  return grads;
}

constexpr NearGrads kCancels{.misses = 2, .units_in_double = 32};

TEST(LeafGrads, AreAddedTo) {
  for (const int64_t rows : {1, 9, 3000}) {
    expect_near_grads(
        [rows](at::TensorOptions options) {
          const auto leaves = leaves_of(options, rows);
          for (const at::Tensor& leaf : leaves) leaf.mutable_grad() = at::randn_like(leaf).detach();
          const auto before = grads_of(leaves);
          backward(leaves);
          backward(leaves);
          for (size_t i = 0; i < leaves.size(); ++i) {
            EXPECT_TRUE(leaves[i].grad().is_same(before[i])) << i;
            EXPECT_EQ(before[i]._version(), 2) << i;
          }
          return before;
        },
        kCancels);
  }
}

TEST(LeafGrads, SomeHaveNone) {
  for (const size_t none : {0U, 1U, 2U, 3U, 4U, 5U}) {
    expect_near_grads(
        [none](at::TensorOptions options) {
          const auto leaves = leaves_of(options);
          for (size_t i = 0; i < leaves.size(); ++i) {
            if (i != none) leaves[i].mutable_grad() = at::randn_like(leaves[i]).detach();
          }
          backward(leaves);
          return grads_of(leaves);
        },
        kCancels);
  }
}

/// How often LeafWrites adds to these gradients of leaves, which all get one result of 9 x 24.
size_t adds_to(const Tensors& grads, const at::Tensor& load) {
  codegen::Group group;
  codegen::Step step;
  const codegen::Slots slots{load};
  std::vector<codegen::LeafRequest> requests;
  using State = codegen::LeafRequest::State;
  group.loads.push_back({0});
  step.inputs.push_back({0, false});
  for (const at::Tensor& grad : grads) {
    group.leaves.push_back({0, 0, &grad == &grads.back(), true});
    step.leaves.push_back({.takes_result = &grad == &grads.back()});
    requests.push_back({State::AddWanted, grad});
  }
  const codegen::LeafWrites writes(group, step, slots, requests, codegen::cpu::empty_strided_recycled, [](size_t) {
    return codegen::ResultLayout{{9, 24}, {24, 1}, at::kFloat};
  });
  EXPECT_EQ(writes.is_only_added(0), writes.writes().size() == grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    const bool adds = std::any_of(writes.writes().begin(), writes.writes().end(), [&](const auto& write) { return write.leaf == i; });
    EXPECT_EQ(requests[i].state, adds ? State::Added : State::None) << i;
  }
  return writes.writes().size();
}

TEST(LeafGrads, AreAddedToInPlaceWhereThatIsSafe) {
  const auto grad = [] { return at::zeros({9, 24}); };
  const auto load = at::zeros({9, 24});
  EXPECT_EQ(adds_to({grad(), grad()}, load), 2U);
  EXPECT_EQ(adds_to({at::zeros({216})}, load), 1U);                             // another shape
  EXPECT_EQ(adds_to({at::zeros({18, 24}).narrow(0, 3, 9), grad()}, load), 2U);  // a slice of a larger buffer
  EXPECT_EQ(adds_to({at::zeros({24, 9}).t(), grad()}, load), 1U);               // another layout
  EXPECT_EQ(adds_to({grad().to(at::kDouble), grad()}, load), 1U);
  EXPECT_EQ(adds_to({grad().requires_grad_(), grad()}, load), 1U);
  EXPECT_EQ(adds_to({at::zeros({9, 1}).expand({9, 24}), grad()}, load), 1U);
  EXPECT_EQ(adds_to({load, grad()}, load), 1U);  // read meanwhile
  const auto twice = grad();
  EXPECT_EQ(adds_to({twice, twice, grad()}, load), 2U);
  const auto buffer = at::zeros({10, 24});
  EXPECT_EQ(adds_to({buffer.narrow(0, 0, 9), buffer.narrow(0, 1, 9)}, load), 1U);
}

// Slices of one buffer, as in trainers that reduce all gradients at once.
TEST(LeafGrads, InOneBuffer) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto leaves = leaves_of(options);
        int64_t size = 0;
        for (const at::Tensor& leaf : leaves) size += leaf.numel();
        const auto buffer = at::zeros({size}, options);
        int64_t begin = 0;
        for (const at::Tensor& leaf : leaves) {
          leaf.mutable_grad() = buffer.narrow(0, begin, leaf.numel()).view(leaf.sizes());
          begin += leaf.numel();
        }
        backward(leaves);
        backward(leaves);
        return Tensors{buffer};
      },
      kCancels);
}

// Leaves whose gradients share memory, or are one tensor, get both sums.
TEST(LeafGrads, ThatOverlap) {
  for (const int64_t shift : {0, 5, 24}) {
    expect_near_grads(
        [shift](at::TensorOptions options) {
          const auto leaves = leaves_of(options);
          const auto buffer = at::zeros({9 * 24 + shift}, options);
          leaves[0].mutable_grad() = buffer.narrow(0, 0, 9 * 24).view({9, 24});
          leaves[1].mutable_grad() = buffer.narrow(0, shift, 9 * 24).view({9, 24});
          if (shift == 0) leaves[2].mutable_grad() = leaves[1].grad();
          backward(leaves);
          return Tensors{buffer};
        },
        kCancels);
  }
}

TEST(LeafGrads, OfOtherLayouts) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto leaves = leaves_of(options);
        leaves[0].mutable_grad() = at::zeros({24, 9}, options).t();
        leaves[1].mutable_grad() = at::zeros({9, 48}, options).slice(1, 0, 48, 2);
        leaves[4].mutable_grad() = at::zeros({48}, options).slice(0, 0, 48, 2);
        backward(leaves);
        backward(leaves);
        return grads_of(leaves);
      },
      kCancels);
}

// The kernel reads the same memory that it adds to.
TEST(LeafGrads, ThatTheFormulaReads) {
  for (const int64_t shift : {0, 3}) {
    expect_near_grads(
        [shift](at::TensorOptions options) {
          const auto x = near_leaf({40, 30}, options);
          const auto buffer = at::randn({40 * 30 + shift}, options);
          x.mutable_grad() = buffer.narrow(0, 0, 40 * 30).view({40, 30});
          const auto factor = buffer.narrow(0, shift, 40 * 30).view({40, 30});
          (x.sin() * factor).sum().backward();
          return Tensors{buffer};
        },
        {.misses = 3});
    EXPECT_EQ(stats().fallbacks_by_reason["SavesGradient"], 2U);
  }
}

// A node saved a leaf's gradient, which changes in the same backward: it must be read before that, as in programs with a learned learning
// rate.
TEST(LeafGrads, ThatAnotherNodeSaved) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto p = near_leaf({6, 20}, options), rate = near_leaf({1}, options), bias = near_leaf({20}, options);
        p.mutable_grad() = at::randn({6, 20}, options);
        const auto first = (p * 2 + bias).sigmoid().sum(), second = (p.tanh() - rate * p.grad()).cos().sum();
        (first + second).backward();
        return Tensors{p.grad(), rate.grad(), bias.grad()};
      },
      {.misses = 3, .units_in_double = 32});  // sums that cancel
  EXPECT_EQ(stats().fallbacks_by_reason["SavesGradient"], 2U);
}

// A hook returns a leaf's gradient, which is added to between two reads of the stock engine.
TEST(LeafGrads, ThatAHookReturns) {
  for (const bool sliced : {false, true}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf({9, 28}, options), w = near_leaf({9, 28}, options);
          w.mutable_grad() = at::ones({9, 28}, options);
          const auto y = sliced ? at::cat({x, x.slice(1, 0, 2)}, 1).tanh().slice(1, 2) : x.tanh(), m = w * 2;
          const auto sum = y + m;
          sum.register_hook([&](const at::Tensor&) { return w.grad(); });
          sum.sum().backward();
          return Tensors{x.grad(), w.grad()};
        },
        {.misses = 3});
  }
}

/// Gradients of two dtypes from one kernel, one of them large enough for the kernel to write it itself.
struct OfTwoTypes : torch::autograd::Function<OfTwoTypes> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({w});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    return {gradients[0] * 2, gradients[0] * context->get_saved_variables()[0]};
  }
};

TEST(LeafGrads, OfTwoTypes) {
  const auto run = [](bool ours) {
    at::manual_seed(1);
    const auto x = at::randn({400000}).to(at::kBFloat16).set_requires_grad(true), w = at::randn({400000}).set_requires_grad(true);
    Options options = fused_options();
    options.enabled = ours;
    for (int i = 0; i < 4; ++i) {
      const auto loss = OfTwoTypes::apply(x, w).relu().sum();
      const auto guard = hindcast::enable(options);
      loss.backward();
    }
    return Tensors{x.grad(), w.grad()};
  };
  const auto stock = run(false), ours = run(true);
  for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(stock[i].equal(ours[i])) << i;
}

// Memory that must not be added to in place must give the stock engine's error.
TEST(LeafGrads, ThatCanNotBeAddedTo) {
  const auto message = [](bool ours) {
    const auto x = at::ones({4, 5}).requires_grad_();
    const auto step = [&] {
      const auto loss = (x * x).sin().mul(x).sum();
      if (!ours) return loss.backward();
      const auto guard = hindcast::enable(fused_options());
      loss.backward();
    };
    for (int i = 0; i < 3; ++i) step();
    x.mutable_grad() = at::zeros({1, 1}).expand({4, 5});
    try {
      step();
    } catch (const c10::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("none");
  };
  const std::string stock = message(false);
  EXPECT_NE(stock, "none");
  EXPECT_EQ(message(true), stock);
}

TEST(LeafGrads, InSixteenBits) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const auto run = [&](bool ours) {
      at::manual_seed(1);
      const auto x = at::randn({20, 30}).to(type).requires_grad_(), y = at::randn({20, 30}).to(type).requires_grad_();
      for (int i = 0; i < 4; ++i) {
        const auto loss = (x + y).neg().relu().sum();
        Options options = fused_options();
        options.enabled = ours;
        const auto guard = hindcast::enable(options);
        loss.backward();
      }
      return Tensors{x.grad(), y.grad()};
    };
    hindcast::reset();
    const auto stock = run(false), ours = run(true);
    EXPECT_GE(hindcast::stats().fused_graphs, 1U);
    for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(stock[i].equal(ours[i])) << type;
  }
}

// A kernel's variables: the second op is a sum, and the second leaf is a pointer.
TEST(LeafGrads, ASumBesideLargeLeaves) {
  const auto program = [](at::TensorOptions options) {
    const auto a = near_leaf({512, 520}, options), b = near_leaf({512, 520}, options), row = near_leaf({512, 1}, options);
    (a + b + row).sigmoid().sum().backward();
    return std::vector<at::Tensor>{a.grad(), b.grad(), row.grad()};
  };
  expect_near_grads(program, {.units_in_double = 16});
}

}  // namespace
}  // namespace hindcast::tests::leaf_grads_test
