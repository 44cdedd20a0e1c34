// Gradients of slices and of pads, which kernels read from the source tensors.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/calls_left.h"

namespace hindcast::tests::padding_test {
namespace {

using Tensors = std::vector<at::Tensor>;

const at::TensorOptions kFloats = at::TensorOptions(at::kFloat);

/// Calls that materialize a padding, or add into a slice.
int64_t paddings_left(const std::function<void()>& backward) {
  const auto left = calls_left(backward);
  return std::count_if(left.begin(), left.end(), [](const std::string& name) {
    return name == "aten::constant_pad_nd" || name == "aten::slice_backward" || name == "aten::add_";
  });
}

at::Tensor padded(const at::Tensor& x, at::IntArrayRef pad) { return at::constant_pad_nd(x, pad); }

at::Tensor differences(const at::Tensor& x, int64_t dim) { return x.slice(dim, 1) - x.slice(dim, 0, -1); }

TEST(Windows, AreNoStepOfTheirOwn) {
  EXPECT_EQ(paddings_left([] { padded(near_leaf({4, 6, 8, 8}, kFloats).tanh(), {1, 1, 1, 1}).pow(2).sum().backward(); }), 0);
  EXPECT_EQ(paddings_left([] { padded(near_leaf({4, 8, 8}, kFloats).tanh(), {-1, -2}).pow(2).sum().backward(); }), 0);
  EXPECT_EQ(paddings_left([] { differences(near_leaf({9, 30}, kFloats).tanh(), 1).pow(2).sum().backward(); }), 0);
  EXPECT_EQ(paddings_left([] { near_leaf({9, 30}, kFloats).tanh().slice(0, 1, -1).slice(1, 2).pow(2).sum().backward(); }), 0);
}

TEST(Windows, OfLittleAreATens) {
  EXPECT_EQ(paddings_left([] { near_leaf({9, 30}, kFloats).tanh().slice(1, 20).pow(2).sum().backward(); }), 1);
  EXPECT_EQ(paddings_left([] { near_leaf({9, 30}, kFloats).tanh().slice(1, 2, 30, 2).pow(2).sum().backward(); }), 1);
}

// If no kernel reads them, or user code sees them.
TEST(Windows, ThatAreTensorsAnyway) {
  EXPECT_EQ(paddings_left([] { near_leaf({9, 30}, kFloats).slice(1, 2).pow(2).sum().backward(); }), 1);
  at::Tensor seen;
  const auto hooked = [&](at::TensorOptions options) {
    const auto x = near_leaf({9, 30}, options), y = x.tanh();
    y.register_hook([&](const at::Tensor& gradient) { seen = gradient.clone(); });
    y.slice(1, 2).pow(2).sum().backward();
    return Tensors{x.grad(), seen};
  };
  expect_near_grads(hooked);
}

// A gradient that one hook keeps and another writes to before a kernel reads it.
TEST(Windows, OfWhatAHookWritesTo) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({9, 30}, options), w = near_leaf({9, 28}, options);
    at::Tensor kept;
    const auto between = w * 3;
    between.register_hook([&](at::Tensor) {
      const at::NoGradGuard no_grad;
      kept.zero_();
    });
    const auto part = (x * 2).tanh().slice(1, 2);
    part.register_hook([&](at::Tensor gradient) { kept = gradient; });
    (part * 2 + between).pow(3).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

struct Case {
  at::DimVector sizes;
  at::DimVector pad;
};

// Short rows, rows of one tile, longer ones; whole dims; one element; none; parts, and both.
TEST(Windows, OfPads) {
  for (const Case& c : {Case{{4, 6, 8, 8}, {1, 1, 1, 1}},
                        {{4, 6, 8, 8}, {0, 0, 2, 1}},
                        {{2, 3, 7, 7}, {2, 3}},
                        {{3, 300}, {5, 0}},
                        {{3, 300}, {0, 5, 1, 1}},
                        {{5, 2500}, {1000, 1000}},
                        {{2500, 5}, {0, 0, 7, 7}},
                        {{9, 1, 9}, {0, 0, 0, 1}},
                        {{9, 2, 9}, {0, 0, 0, -1}},
                        {{1, 1}, {0, 1}},
                        {{7}, {1, 2}},
                        {{7}, {-1, -2}},
                        {{4, 6, 8, 8}, {-1, -1, -1, -1}},
                        {{4, 6, 8, 8}, {-1, 1, 1, -1}},
                        {{40, 300}, {-1, 1, 1, -1}},
                        {{3, 1}, {-1, 2}},
                        {{0, 4}, {1, 1}},
                        {{3, 4, 5, 6}, {0, 1, 0, 1, 0, 1, 0, 1}}}) {
    SCOPED_TRACE(testing::Message() << c.sizes << " " << c.pad);
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf(c.sizes, options), y = x.tanh();
          (padded(y, c.pad).sigmoid() * 3).pow(2).sum().backward();
          return Tensors{x.grad()};
        },
        {.fused_graphs = c.sizes[0] == 0 ? 0U : 1U});
  }
}

TEST(Windows, OfSlices) {
  for (const auto& [sizes, dim] : {std::pair<at::DimVector, int64_t>{{9, 30}, 0},
                                   {{9, 30}, 1},
                                   {{300, 70}, 0},
                                   {{300, 70}, 1},
                                   {{2, 5000}, 1},
                                   {{5, 4, 3, 6}, 2},
                                   {{5, 4, 300}, 1},
                                   {{2, 2}, 0},
                                   {{100000}, 0}}) {
    SCOPED_TRACE(sizes);
    expect_near_grads(
        [&, sizes = sizes, dim = dim](at::TensorOptions options) {
          const auto x = near_leaf(sizes, options), y = x * 2;
          differences(y, dim).abs().sum().backward();
          differences(x, dim).pow(2).sum().backward();
          return Tensors{x.grad()};
        },
        {.misses = 2});
  }
}

TEST(Windows, OfWindows) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({8, 9, 40}, options), y = x.tanh();
        (y.slice(0, 1).slice(1, 0, -2).slice(2, 3, 35).sigmoid() * 2).sum().backward();
        padded(padded(x.sin(), {-1, -1}), {2, 2}).pow(3).sum().backward();
        padded(padded(x.sin(), {2, 2}), {-1, -1, 1, 0}).pow(3).sum().backward();
        padded(x.sin(), {0, 0, 1, 1}).slice(2, 1, -1).exp().sum().backward();
        return Tensors{x.grad()};
      },
      {.misses = 4, .units_in_double = 16});
}

// Broadcast, reshaped, transposed, channels last, of another dtype.
TEST(Windows, OfTensorsThatLieInAnotherWay) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({30, 20}, options), w = near_leaf({20, 29}, options), row = near_leaf({20}, options);
        const auto y = x.tanh();
        (y.slice(0, 1).t() * w).sum().backward();
        (row.sin().slice(0, 3).expand({5, 17}) * 2).exp().sum().backward();
        (x.cos().slice(1, 2).reshape({10, 54}) * 3).square().sum().backward();
        return Tensors{x.grad(), w.grad(), row.grad()};
      },
      {.misses = 3});
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({3, 20, 7, 9}, options);
    const auto images = x.tanh().contiguous(at::MemoryFormat::ChannelsLast);
    (padded(images.sin(), {1, 0, 2, 1}) * 2).square().sum().backward();
    return Tensors{x.grad()};
  });
  expect_near_grads([](at::TensorOptions options) {
    // Small integers, which no rounding changes.
    const auto x = near_leaf({30, 20}, options), y = x.to(at::kBFloat16) * 2;
    const auto numbers = [&](at::IntArrayRef sizes) { return at::randint(-8, 9, sizes, y.options().requires_grad(false)); };
    ((y.slice(1, 2) * numbers({30, 18})).sum() + (padded(y * 2, {1, 2}) * numbers({30, 23})).sum()).backward();
    return Tensors{x.grad()};
  });
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({30, 20}, options), y = near_leaf({30, 20}, options);
    const auto z = at::complex(x, y);
    const auto made = padded(z.tanh(), {1, 2}) * padded(z.sigmoid().conj(), {2, 1});
    (made * made).abs().sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

// For kernels by rows, the zeros are written around it first.
TEST(Windows, ReadByRows) {
  for (const int64_t columns : {7, 64, 300}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf({40, columns}, options), bias = near_leaf({columns}, options), y = x + bias;
          at::gelu(y).slice(0, 1).slice(1, 2).pow(2).sum().backward();
          padded(at::softmax(x, 1), {1, 1}).pow(2).sum().backward();
          padded(at::layer_norm(x, {columns}, bias), {-1, 0, -1, 0}).pow(3).sum().backward();
          return Tensors{x.grad(), bias.grad()};
        },
        {.misses = 3, .units_in_double = 16});
  }
}

// One number per row, of a tensor with only some of the rows; a source that is broadcast itself.
TEST(Windows, OfWhatIsBroadcast) {
  for (const int64_t columns : {5, 700}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf({20, columns}, options), y = x.tanh();
          const auto sums = y.sum(1, true);
          sums.slice(0, 3).sum().backward({}, true);
          (sums.slice(0, 3).sum() + (y.slice(0, 3) * 2).pow(2).sum()).backward({}, true);
          padded(sums, {0, 0, -1, -1}).sigmoid().sum().backward();
          return Tensors{x.grad()};
        },
        {.misses = 3, .units_in_double = 16});
  }
}

// Nothing of the tensor is left.
TEST(Windows, BesideTheTensor) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({3}, options), y = near_leaf({3, 4}, options);
        padded(x.tanh(), {5, 0}).slice(0, 0, 4).sum().backward();
        padded(y.tanh(), {0, 0, 5, 0}).slice(0, 0, 4).slice(1, 1).sigmoid().sum().backward();
        padded(y.tanh(), {0, 0, 0, 5}).slice(0, 4).slice(1, 1).sigmoid().sum().backward();
        return Tensors{x.grad(), y.grad()};
      },
      {.misses = 3});
}

// A gradient that flows in is a leaf's own, which is added to before a kernel would read it.
TEST(Windows, OfALeafsGradient) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({9, 30}, options), w = near_leaf({9, 28}, options);
    w.mutable_grad() = at::ones({9, 28}, options);
    const auto y = x.tanh(), m = w * 2;
    (y.slice(1, 2) + m).backward(w.grad());
    return Tensors{x.grad(), w.grad()};
  });
}

// Sizes and starts, also negative ones, that differ from those at compile time; an empty slice, one that was clipped.
TEST(Windows, ThatChange) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto number = [](int64_t low, int64_t high) { return at::randint(low, high, {1}).item<int64_t>(); };
        const int64_t rows = number(20, 60), columns = number(35, 60), start = number(2, 5), pad = number(2, 6);
        const auto x = near_leaf({rows, columns}, options), y = x.tanh();
        const auto left = y.slice(0, start), right = y.slice(1, -30);
        (left.sigmoid().sum() + right.sigmoid().sum() + padded(y.sin(), {pad, 2, 1, pad}).sigmoid().sum()).backward();
        return Tensors{x.grad()};
      },
      {.steps = 9, .misses = 3, .units_in_double = 16});
  for (const int64_t rows : {40, 8, 5, 4, 3, 1}) {
    hindcast::reset();
    const auto grads = [&](int64_t now) {
      const auto x = at::arange(now * 3, at::kFloat).view({now, 3}).div(50).set_requires_grad(true);
      const auto y = x.sin();
      (y.slice(0, -5).square().sum() + y.slice(0, 4).tanh().sum() + y.exp().sum()).backward();
      return x.grad();
    };
    const at::Tensor stock = grads(rows);
    const auto guard = hindcast::enable(fused_options());
    for (const int64_t before : {7, 6, 9}) grads(before);
    EXPECT_TRUE(at::allclose(grads(rows), stock, 1e-5, 1e-6)) << rows;
  }
}

// To a leaf that has a gradient, on several threads, with a gradient that is read again.
TEST(Windows, AddedToAGradient) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({700, 130}, options);
        for (int i = 0; i < 2; ++i) (differences(x, 0).pow(2).sum() + differences(x, 1).pow(2).sum() + x.pow(3).sum()).backward();
        return Tensors{x.grad()};
      },
      {.misses = 2, .units_in_double = 16});
}

}  // namespace
}  // namespace hindcast::tests::padding_test
