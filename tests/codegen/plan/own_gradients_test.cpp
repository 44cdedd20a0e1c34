// Leaves that get the incoming gradient unchanged: each has a tensor of its own, which a kernel that reads the gradient writes.

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"

namespace hindcast::tests::own_gradients_test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// In float32, more than what a kernel leaves to the leaves.
constexpr int64_t kRows = 640, kColumns = 512;

Tensor large(at::TensorOptions options) { return near_leaf({kRows, kColumns}, options); }

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const Tensor& leaf : leaves) grads.push_back(leaf.grad());
  return grads;
}

void expect_own(const Tensors& grads, const Tensor& incoming) {
  for (size_t i = 0; i < grads.size(); ++i) {
    EXPECT_FALSE(grads[i].is_alias_of(incoming)) << i;
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(grads[i].is_alias_of(grads[j])) << i << " and " << j;
  }
}

TEST(OwnGradients, OfAResidual) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options)};
    const Tensor incoming = at::randn({kRows, kColumns}, options);
    (leaves[0].tanh() + leaves[1]).backward(incoming);
    expect_own(grads_of(leaves), incoming);
    EXPECT_TRUE(leaves[1].grad().equal(incoming));
    return grads_of(leaves);
  });
}

TEST(OwnGradients, OfSeveralResidualsAndSizes) {
  for (const int64_t rows : {kRows, kRows + 1, kRows + 3}) {
    expect_near_grads([rows](at::TensorOptions options) {
      Tensors leaves;
      for (int i = 0; i < 3; ++i) leaves.push_back(near_leaf({rows, kColumns}, options));
      const Tensor incoming = at::randn({rows, kColumns}, options);
      (leaves[0].tanh() + leaves[1] + leaves[2]).backward(incoming);
      expect_own(grads_of(leaves), incoming);
      return grads_of(leaves);
    });
  }
}

TEST(OwnGradients, AreAddedToThoseThatAreThere) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options)};
    for (int step = 0; step < 3; ++step) (leaves[0].tanh() + leaves[1]).backward(at::randn({kRows, kColumns}, options));
    return grads_of(leaves);
  });
}

// The incoming gradient is the leaf's own, which accumulates it.
TEST(OwnGradients, OfAGradientThatComesIn) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options)};
    leaves[1].mutable_grad() = at::randn({kRows, kColumns}, options);
    for (int step = 0; step < 2; ++step) (leaves[0].tanh() + leaves[1]).backward(leaves[1].grad());
    return grads_of(leaves);
  });
}

TEST(OwnGradients, OfWhatDoesNotLieDensely) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options)};
    (leaves[0].tanh() + leaves[1]).backward(at::randn({1, kColumns}, options).expand({kRows, kColumns}));
    for (const Tensor& leaf : leaves) leaf.mutable_grad() = leaf.grad() * 1;
    (leaves[0].tanh() + leaves[1]).backward(at::randn({kColumns, kRows}, options).t());
    return grads_of(leaves);
  });
}

// ATen's ops read the incoming gradient itself.
TEST(OwnGradients, BesideAProduct) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const Tensors leaves = {large(options), large(options), near_leaf({kRows, 8}, options), near_leaf({8, kColumns}, options)};
        (leaves[0].tanh() + leaves[1] + at::mm(leaves[2], leaves[3])).backward(at::randn({kRows, kColumns}, options));
        return grads_of(leaves);
      },
      {.units_in_double = 64});
}

TEST(OwnGradients, OfAProductAlone) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const Tensors leaves = {large(options), near_leaf({kRows, 8}, options), near_leaf({8, kColumns}, options)};
        (leaves[0] + at::mm(leaves[1], leaves[2])).backward(at::randn({kRows, kColumns}, options));
        (at::mm(leaves[1], leaves[2]).tanh() + leaves[0].sigmoid()).sum().backward();
        return grads_of(leaves);
      },
      {.units_in_double = 64});
}

// The leaf gets a view of the incoming gradient, through which kernels read: the user's memory stays the user's.
TEST(OwnGradients, OfAViewOfWhatComesIn) {
  for (const int64_t rows : {kRows, int64_t{32}}) {
    expect_near_grads(
        [rows](at::TensorOptions options) {
          const Tensors leaves = {near_leaf({rows, kColumns}, options), near_leaf({rows, kColumns}, options)};
          const Tensor incoming = at::randn({rows, kColumns}, options), before = incoming.clone();
          for (int step = 0; step < 2; ++step)
            torch::autograd::backward({(leaves[0].tanh() + leaves[1]).view({kColumns, rows})}, {incoming.view({kColumns, rows})});
          expect_own(grads_of(leaves), incoming);
          EXPECT_TRUE(incoming.equal(before));
          return grads_of(leaves);
        },
        {.fused_graphs = rows == kRows ? 1U : 0U});
    expect_near_grads([rows](at::TensorOptions options) {
      const Tensors leaves = {near_leaf({rows, kColumns}, options), near_leaf({rows, kColumns}, options)};
      const Tensor incoming = at::randn({rows, kColumns}, options);
      for (int step = 0; step < 2; ++step) (at::layer_norm(leaves[0], {kColumns}) + leaves[1]).view({-1}).backward(incoming.view({-1}));
      expect_own(grads_of(leaves), incoming);
      return grads_of(leaves);
    });
  }
}

// One op reads both: their sum.
TEST(OwnGradients, OfTwoRoots) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options), large(options)};
    const Tensor first = at::randn({kRows, kColumns}, options), second = at::randn({kRows, kColumns}, options), x = leaves[0].tanh();
    torch::autograd::backward({x + leaves[1], x + leaves[2]}, {first, second});
    expect_own(grads_of(leaves), first);
    expect_own(grads_of(leaves), second);
    return grads_of(leaves);
  });
}

// The hook writes to the incoming gradient, and later readers see that.
TEST(OwnGradients, ThatAHookWritesTo) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options), large(options), large(options), large(options)};
    leaves[1].register_hook([](const Tensor& gradient) { gradient.mul_(2); });
    torch::autograd::backward({(leaves[0].tanh() + leaves[1]) + leaves[2], leaves[3].tanh() + leaves[4]},
                              {at::randn({kRows, kColumns}, options), at::randn({kRows, kColumns}, options)});
    return grads_of(leaves);
  });
}

// In the first steps the hook's result has another layout: the rest of the backward is a graph of its own.
TEST(OwnGradients, OfARestThatIsResumed) {
  int calls = 0;
  expect_near_grads(
      [&](at::TensorOptions options) {
        const Tensors leaves = {large(options), large(options), large(options)};
        leaves[0].register_hook([](const Tensor& gradient) { gradient.mul_(3); });
        const Tensor y = at::add(leaves[0] + leaves[1], leaves[2].tanh(), 2);
        y.register_hook([&](const Tensor& gradient) { return calls++ % 6 < 2 ? gradient.t().contiguous().t() : gradient.clone(); });
        y.backward(at::randn({kRows, kColumns}, options));
        return grads_of(leaves);
      },
      {.fused_graphs = 0, .steps = 6, .misses = 6});
}

TEST(OwnGradients, WithHooks) {
  expect_near_grads([](at::TensorOptions options) {
    const Tensors leaves = {large(options), large(options)};
    leaves[1].register_hook([](const Tensor& gradient) { return gradient * 2; });
    const Tensor incoming = at::randn({kRows, kColumns}, options), before = incoming.clone();
    (leaves[0].tanh() + leaves[1]).backward(incoming);
    EXPECT_TRUE(incoming.equal(before));
    return grads_of(leaves);
  });
}

/// Calls in a hit that write a copy with that many elements.
uint64_t copies_in_hit() {
  static uint64_t copies = 0;
  hindcast::reset();
  const auto options = at::TensorOptions(at::kFloat);
  const Tensors leaves = {large(options), large(options)};
  const Tensor incoming = at::randn({kRows, kColumns});
  Options fused;
  fused.compiler = compilers::fused();
  fused.async = false;
  const auto guard = hindcast::enable(fused);
  for (int step = 0; step < 3; ++step) {
    for (const Tensor& leaf : leaves) leaf.mutable_grad().reset();
    const Tensor root = leaves[0].tanh() + leaves[1];
    copies = 0;
    const auto handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
          copies += std::string_view(call.name()) == "aten::copy_" || std::string_view(call.name()) == "aten::clone" ? 1 : 0;
          return nullptr;
        }));
    root.backward(incoming);
    at::removeCallback(handle);
  }
  EXPECT_EQ(hindcast::stats().hits, 2U);
  return copies;
}

TEST(OwnGradients, AreWrittenByTheKernel) { EXPECT_EQ(copies_in_hit(), 0U); }

}  // namespace
}  // namespace hindcast::tests::own_gradients_test
