// Parts of a cat or stack that a kernel writes directly into the whole: gradients of chunk(), split() and unbind().

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/memory/counting_allocator.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

/// How many of ATen's cats and stacks remain in a fused plan of the backward.
template <class Backward>
int64_t concats_left(const Backward& backward) {
  const auto left = calls_left(backward);
  return std::count_if(left.begin(), left.end(), [](const std::string& name) { return name == "aten::cat" || name == "aten::stack"; });
}

at::Tensor gated(const at::Tensor& x, int64_t dim) {
  const auto parts = x.chunk(2, dim);
  return at::silu(parts[0]) * parts[1];
}

at::Tensor cell(const at::Tensor& gates, const at::Tensor& state) {
  const auto parts = gates.chunk(4, 1);
  return parts[3].sigmoid() * (parts[0].sigmoid() * parts[1].tanh() + parts[2].sigmoid() * state).tanh();
}

const at::TensorOptions kFloats = at::TensorOptions(at::kFloat);

TEST(Concats, OfOneKernelAreNoStepOfTheirOwn) {
  EXPECT_EQ(concats_left([] { gated(near_leaf({6, 40}, kFloats), -1).sum().backward(); }), 0);
  EXPECT_EQ(concats_left([] { cell(near_leaf({6, 80}, kFloats), near_leaf({6, 20}, kFloats)).sum().backward(); }), 0);
  EXPECT_EQ(concats_left([] {
              const auto parts = near_leaf({6, 2, 20}, kFloats).unbind(1);
              (parts[0].tanh() * parts[1]).sum().backward();
            }),
            0);
}

TEST(Concats, OfOtherPartsAreATens) {
  EXPECT_EQ(concats_left([] {  // a matrix product computes one of the parts
              const auto parts = near_leaf({20, 40}, kFloats).chunk(2, 1);
              (parts[0].mm(parts[1]) + parts[0].tanh()).sum().backward();
            }),
            1);
  EXPECT_EQ(concats_left([] {  // of two sizes
              const auto parts = near_leaf({6, 40}, kFloats).split_with_sizes({10, 30}, 1);
              (parts[0].tanh().sum() + parts[1].sigmoid().sum()).backward();
            }),
            1);
  EXPECT_EQ(concats_left([] { near_leaf({6, 40}, kFloats).chunk(2, 1)[0].tanh().sum().backward(); }), 1);  // of zeros
}

// Rows that are long, short, single, odd; parts that are one piece of memory; negative dims; sizes that change.
TEST(Concats, OfGates) {
  struct Case {
    at::DimVector sizes;
    int64_t dim;
  };
  for (const Case& c : {Case{{6, 40}, 1},
                        {{3, 1030}, -1},
                        {{1, 40}, 1},
                        {{40, 7}, 0},
                        {{9, 6}, 1},
                        {{9, 2}, 1},
                        {{5, 8, 3, 7}, 1},
                        {{5, 8, 3, 7}, -3},
                        {{2, 3, 4}, 2},
                        {{7000, 64}, 1},
                        {{20, 2, 1, 1}, 1},
                        {{4, 2, 50}, 0}}) {
    SCOPED_TRACE(c.sizes);
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = near_leaf(c.sizes, options);
      gated(x * 2, c.dim).pow(2).sum().backward();
      return Tensors{x.grad()};
    });
  }
}

TEST(Concats, OfLstmCells) {
  for (const int64_t hidden : {1, 5, 20, 300}) {
    const auto cells = [&](at::TensorOptions options) {
      const auto x = near_leaf({7, hidden}, options), weight = near_leaf({4 * hidden, hidden}, options),
                 bias = near_leaf({4 * hidden}, options);
      auto state = at::zeros({7, hidden}, options);
      for (int t = 0; t < 3; ++t) state = cell(at::linear(x, weight / hidden, bias), state);
      state.sum().backward();
      return Tensors{x.grad(), weight.grad(), bias.grad()};
    };
    expect_near_grads(cells, {.units_in_double = 16});  // products sum in another order than ATen's
  }
}

TEST(Concats, OfStacks) {
  for (const int64_t dim : {0, 1, 2, -1}) {
    SCOPED_TRACE(dim);
    expect_near_grads([&](at::TensorOptions options) {
      at::DimVector sizes{17, 33};
      sizes.insert(sizes.begin() + (dim < 0 ? 2 : dim), 3);
      const auto x = near_leaf(sizes, options);
      const auto parts = x.unbind(dim);
      (parts[0].tanh() * parts[1] + parts[2].sigmoid() * parts[1]).sum().backward();
      return Tensors{x.grad()};
    });
  }
}

TEST(Concats, OfShortFloats) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    expect_near_grads([type](at::TensorOptions options) {
      const auto x = near_leaf({9, 64}, options);
      gated(x.to(type), 1).sum().backward();
      return Tensors{x.grad()};
    });
  }
}

// With another shape than the kernel's result; and next to others over finer axes of the domain.
TEST(Concats, OfViews) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 96}, options), y = near_leaf({6, 4, 12}, options);
    const auto parts = (x * 1).chunk(2, 1);
    (parts[0].tanh().view({6, 4, 12}) * y * parts[1].sigmoid().view({6, 4, 12})).pow(2).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 2, 48}, options);
    const auto parts = x.view({6, 96}).chunk(2, 1);
    ((parts[0].view({2, 3, 48}).tanh() + 1) * parts[1].reshape({6, 48}).view({2, 3, 48})).pow(2).sum().backward();
    return Tensors{x.grad()};
  });
}

// A part that others read too, one that occurs twice, one that is a leaf's gradient.
TEST(Concats, OfPartsThatOthersRead) {
  expect_near_grads([](at::TensorOptions options) {
    const auto a = near_leaf({6, 20}, options), b = near_leaf({6, 20}, options), x = near_leaf({6, 40}, options),
               w = near_leaf({20, 20}, options);
    const auto parts = x.chunk(2, 1);
    ((parts[0] + a).tanh() * (parts[1] + parts[0]) + b).sum().backward();
    (at::mm((parts[0] + a).tanh(), w) * parts[1].tanh()).sum().backward();
    return Tensors{a.grad(), b.grad(), x.grad(), w.grad()};
  });
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 40}, options);
    const auto parts = x.chunk(2, 1);
    (parts[0] + parts[1]).tanh().sum().backward();
    return Tensors{x.grad()};
  });
}

// The whole is a leaf's gradient, new or added to; large; in another memory format; the result of grad().
TEST(Concats, AreGradientsOfLeaves) {
  for (const int64_t rows : {9, 9000}) {
    expect_near_grads(
        [rows](at::TensorOptions options) {
          const auto x = near_leaf({rows, 80}, options), y = near_leaf({rows, 80}, options);
          y.mutable_grad() = at::randn_like(y).detach();
          for (int i = 0; i < 2; ++i) gated(x + y, 1).sum().backward();
          return Tensors{x.grad(), y.grad()};
        },
        {.misses = 2});
  }
  expect_near_grads([](at::TensorOptions options) {
    const auto x = at::randn({3, 8, 5, 5}).to(options.dtype()).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
    gated(x, 1).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(Concats, OfNothing) {
  for (const at::DimVector& sizes : {at::DimVector{0, 40}, {6, 0}, {0}}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf(sizes, options);
          gated(x * 2, -1).pow(2).sum().backward();
          return Tensors{x.grad()};
        },
        {.fused_graphs = 0});
  }
}

// One kernel for all batches, whatever their number of rows.
TEST(Concats, OfSizesThatChange) {
  hindcast::reset();
  const auto stock_of = [](const at::Tensor& x) {
    gated(x, -1).pow(2).sum().backward();
    return x.grad();
  };
  for (const int64_t rows : {3, 7, 50, 2, 1, 9, 3000, 0, 4}) {
    const auto x = near_leaf({rows, 66}, kFloats), same = x.detach().clone().set_requires_grad(true);
    const auto expected = stock_of(same);
    const auto guard = hindcast::enable(fused_options());
    const auto grad = stock_of(x);
    EXPECT_TRUE(at::allclose(grad, expected, 1e-5, 1e-6)) << rows;
    EXPECT_EQ(grad.strides(), expected.strides()) << rows;
  }
  EXPECT_LE(hindcast::stats().misses, 4U);
}

// Hooks between the parts and the whole see the parts.
TEST(Concats, BehindHooks) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 40}, options);
    auto parts = x.chunk(2, 1);
    at::Tensor seen;
    parts[0].register_hook([&](const at::Tensor& grad) {
      seen = grad.clone();
      return grad * 2;
    });
    (parts[0].tanh() * parts[1].sigmoid()).sum().backward();
    return Tensors{x.grad(), seen};
  });
}

TEST(Concats, AreVerified) {
  hindcast::reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = hindcast::enable(options);
  for (const int64_t width : {4, 40, 2000}) gated(near_leaf({6, width}, kFloats), 1).pow(2).sum().backward();
  EXPECT_EQ(hindcast::stats().fused_graphs, 3U);
  EXPECT_EQ(hindcast::stats().refused_graphs, 0U);
}

int64_t peak_of_a_backward() {
  const auto x = near_leaf({64, 8192}, kFloats), state = near_leaf({64, 2048}, kFloats);
  const auto loss = cell(x * 2, state * 2).pow(2).sum();
  codegen::cpu::CountingAllocator counts;
  loss.backward();
  return codegen::cpu::CountingAllocator::most();
}

TEST(Concats, NeedNoMoreMemoryThanStock) {
  hindcast::reset();
  const int64_t stock = peak_of_a_backward();
  const auto guard = hindcast::enable(fused_options());
  peak_of_a_backward();
  EXPECT_LE(peak_of_a_backward(), stock + 65536);
  EXPECT_EQ(hindcast::stats().hits, 1U);
}

}  // namespace
}  // namespace hindcast::tests
