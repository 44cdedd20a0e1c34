// Sums over rows and columns in one kernel with the ops around them.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "codegen/cpu/parallel.h"
#include "tests/codegen/cpu/near_grads.h"

namespace hindcast::tests::rows_test {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
  return grads;
}

TEST(Rows, TheGradientOfABiasIsASumOverRows) {
  for (const at::DimVector& sizes : {at::DimVector{5, 33}, {2, 3, 17}, {1, 40}, {700, 20}, {3, 1, 2, 16}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = near_leaf(sizes, options), bias = near_leaf({sizes.back()}, options);
      at::gelu(x * 2 + bias).pow(2).sum().backward();
      return grads_of({x, bias});
    });
  }
}

// Summed and kept axes in any order, also alternating, and sizes of 0.
TEST(Rows, TheGradientOfABiasThatIsBroadcastAnywhere) {
  const std::vector<at::DimVector> shapes = {{2, 3, 2, 3, 2}, {2, 0, 3, 3}, {2, 0, 0}, {0, 3, 2}, {3, 2, 0}};
  for (const at::DimVector& sizes : shapes) {
    for (uint32_t kept = 0; kept < 1U << sizes.size(); ++kept) {
      at::DimVector of_bias = sizes;
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (!(kept >> i & 1)) of_bias[i] = 1;
      }
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " and " << at::IntArrayRef(of_bias));
      expect_near_grads(
          [&](at::TensorOptions options) {
            const auto x = near_leaf(sizes, options), bias = near_leaf(of_bias, options);
            ((x * 2).tanh() - bias).pow(2).sum().backward();
            return grads_of({x, bias});
          },
          {.fused_graphs = 0});
    }
  }
  for (const at::DimVector& of_bias : {at::DimVector{2, 2, 1, 2, 1, 2}, {1, 2, 1, 2, 1, 2}, {2, 1, 2, 1, 1, 2}}) {
    SCOPED_TRACE(at::IntArrayRef(of_bias));
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = near_leaf({2, 2, 2, 2, 2, 2}, options), bias = near_leaf(of_bias, options);
      (x.permute({5, 3, 1, 0, 2, 4}) - bias).pow(2).sum().backward();
      return grads_of({x, bias});
    });
  }
}

TEST(Rows, LayerNorm) {
  struct Case {
    at::DimVector sizes, normal;
  };
  for (const Case& c : {Case{{6, 20}, {20}}, {{2, 5, 48}, {48}}, {{4, 3, 5}, {3, 5}}, {{300, 17}, {17}}, {{2, 2000}, {2000}}}) {
    SCOPED_TRACE(at::IntArrayRef(c.sizes));
    for (const bool affine : {true, false}) {
      expect_near_grads([&](at::TensorOptions options) {
        const auto x = near_leaf(c.sizes, options), weight = near_leaf(c.normal, options), bias = near_leaf(c.normal, options);
        const auto y = affine ? at::layer_norm(x + 0.5, c.normal, weight, bias) : at::layer_norm(x + 0.5, c.normal);
        (y.tanh() * x).sum().backward();
        return affine ? grads_of({x, weight, bias}) : grads_of({x});
      });
    }
  }
}

TEST(Rows, OnlyTheWantedGradientsOfANorm) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 20}, options).detach(), weight = near_leaf({20}, options), bias = near_leaf({20}, options);
    at::layer_norm(x, {20}, weight, bias).tanh().mul(x).sum().backward();
    return grads_of({weight, bias});
  });
}

TEST(Rows, BatchNorm) {
  for (const at::DimVector& sizes : {at::DimVector{6, 4, 5, 5}, {30, 3, 16}, {64, 7}, {2, 20, 33, 1}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    for (const bool training : {true, false}) {
      expect_near_grads(
          [&](at::TensorOptions options) {
            const auto x = near_leaf(sizes, options), weight = near_leaf({sizes[1]}, options), bias = near_leaf({sizes[1]}, options);
            const auto mean = at::zeros({sizes[1]}, options), variance = at::ones({sizes[1]}, options);
            const auto y = at::batch_norm(x * 2, weight, bias, mean, variance, training, 0.1, 1e-5, false);
            (y.relu() * x).sum().backward();
            return grads_of({x, weight, bias});
          },
          // In two dims a channel's elements are not contiguous, and the norm stays with ATen.
          {.fused_graphs = sizes.size() > 2 ? 1U : 0U});
    }
  }
}

// Small images: a channel of one image is a few elements. Odd ones, of one row and one image, of more rows than are copied at once, and a
// leaf large enough for the kernel to add to.
TEST(Rows, OfShortRuns) {
  for (const at::DimVector& sizes : {at::DimVector{8, 20, 2, 2},
                                     {2, 5, 3, 3},
                                     {40, 50, 4, 4},
                                     {1, 3, 7, 9},
                                     {9, 1, 5, 5},
                                     {300, 3, 2, 1},
                                     {5000, 2, 2, 2},
                                     {200, 96, 3, 5}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    for (const bool is_short : {false, true}) {
      expect_near_grads(
          [&](at::TensorOptions options) {
            const auto x = near_leaf(sizes, options), weight = near_leaf({sizes[1]}, options), bias = near_leaf({sizes[1]}, options);
            x.mutable_grad() = at::randn_like(x).detach();
            const auto y = at::batch_norm(x, weight, bias, {}, {}, true, 0.1, 1e-5, false);
            const auto factor = at::randn(sizes, options.requires_grad(false));
            ((is_short ? y.relu().to(at::kBFloat16) : y.relu()).tanh() * factor).sum().backward();
            return grads_of({x, weight, bias});
          },
          {.units_in_double = 64});  // a norm's gradient is a difference
    }
  }
}

// Sums over all rows next to sums within them.
TEST(Rows, OfShortRunsAndTheirSums) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({6, 300, 10}, options), shift = near_leaf({6, 1, 10}, options);
    const auto weight = near_leaf({300}, options), bias = near_leaf({300}, options);
    at::batch_norm((x + shift).tanh(), weight, bias, {}, {}, true, 0.1, 1e-5, false).sigmoid().sum().backward();
    return grads_of({x, shift, weight, bias});
  });
}

TEST(Rows, Softmax) {
  for (const int64_t dim : {-1, 0}) {
    expect_near_grads([&](at::TensorOptions options) {
      const auto x = near_leaf({9, 5, 31}, options), y = near_leaf({9, 5, 31}, options);
      (at::softmax(x * 3, dim) * y + at::log_softmax(x - y, dim) * 0.1).sum().backward();
      return grads_of({x, y});
    });
  }
}

TEST(Rows, CrossEntropy) {
  for (const int64_t reduction : {0, 1, 2}) {
    for (const int64_t ignored : {-100, 3}) {
      expect_near_grads([&](at::TensorOptions options) {
        const auto x = near_leaf({21, 17}, options);
        const auto weight = at::rand({17}).to(options.dtype());
        auto target = at::randint(17, {21}, at::kLong);
        target[4] = ignored;
        at::cross_entropy_loss(x * 1.5, target, reduction == 0 ? at::Tensor() : weight, reduction, ignored).sum().backward();
        return grads_of({x});
      });
    }
  }
}

TEST(Rows, ANormWrittenByHand) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({4, 6, 32}, options), weight = near_leaf({32}, options);
    const auto y = x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight;
    (y * y).mean().backward();
    return grads_of({x, weight});
  });
}

TEST(Rows, Losses) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({7, 9}, options), y = near_leaf({7, 9}, options);
    Tensors losses;
    for (const int64_t reduction : {1, 2}) {
      losses.push_back(at::mse_loss(x * 2, y, reduction) + at::l1_loss(x, y * 3, reduction));
      losses.push_back(at::smooth_l1_loss(x, y.exp(), reduction, 0.5) + at::huber_loss(x, y.tanh(), reduction, 0.7));
    }
    at::stack(losses).sum().backward();
    return grads_of({x, y});
  });
}

TEST(Rows, OtherShapesOfOneMemory) {
  expect_near_grads([](at::TensorOptions options) {
    const auto x = near_leaf({4, 6, 20}, options), weight = near_leaf({20, 20}, options), bias = near_leaf({20}, options);
    const auto flat = at::gelu(at::linear(x.tanh().view({24, 20}), weight, bias)).view({4, 6, 4, 5});
    (flat.exp().view({4, 6, 20}) * x).view({2, 2, 6, 20}).sigmoid().sum().backward();
    return grads_of({x, weight, bias});
  });
}

/// From the step's seed, so that both engines get the same.
int64_t any_of_1_to_9() { return at::randint(1, 10, {1}).item<int64_t>(); }

// The first capture is for its sizes, the second for all.
TEST(Rows, TheNumberOfRowsChanges) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const int64_t rows = 5 + any_of_1_to_9();
        const auto x = near_leaf({rows, 2, 24}, options), weight = near_leaf({24}, options), bias = near_leaf({24}, options);
        const auto y = at::layer_norm(x + bias, {24}, weight, bias);
        at::log_softmax(at::gelu(y.view({rows * 2, 24})), -1).pow(2).mean().backward();
        return grads_of({x, weight, bias});
      },
      {.fused_graphs = 2, .steps = 8, .misses = 2});
}

TEST(Rows, TheLengthOfRowsChanges) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const int64_t columns = 20 + any_of_1_to_9();
        const auto x = near_leaf({6, 2, columns}, options), weight = near_leaf({columns}, options), bias = near_leaf({columns}, options);
        const auto y = at::layer_norm(x + bias, {columns}, weight, bias);
        const auto target = at::randn({6, 2, columns}, options);  // of both signs: with equal signs the gradient of softmax cancels
        (at::softmax(at::gelu(y) * x, -1) * target).sum().backward();
        return grads_of({x, weight, bias});
      },
      // The norm's gradient is a difference too: ATen's own results with AVX2 and with AVX-512 are up to 85 units apart.
      {.fused_graphs = 2, .steps = 8, .misses = 2, .units_in_double = 128});
}

// Batch and length of a transformer's layer: some shapes have a dim for each, others one dim for both.
TEST(Rows, BatchAndLengthChange) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const int64_t batch = 1 + any_of_1_to_9(), length = 2 + any_of_1_to_9();
        const auto x = near_leaf({batch, length, 16}, options), weight = near_leaf({32, 16}, options), bias = near_leaf({32}, options),
                   back = near_leaf({16, 32}, options), scale = near_leaf({16}, options);
        const auto inner = at::gelu(at::linear(at::layer_norm(x, {16}, scale, scale), weight, bias));
        const auto y = x + at::linear(inner, back, scale);
        const auto target = at::randint(16, {batch * length}, at::kLong);
        at::cross_entropy_loss((y * y.sigmoid()).view({batch * length, 16}), target).backward();
        return grads_of({x, weight, bias, back, scale});
      },
      {.fused_graphs = 2, .steps = 10, .misses = 4});
}

TEST(Rows, NoRowsAndNoColumns) {
  for (const at::DimVector& sizes : {at::DimVector{0, 20}, {4, 0}}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto x = near_leaf(sizes, options), bias = near_leaf({sizes[1]}, options);
          (at::softmax(x * 2 + bias, -1) * bias).tanh().sum().backward();
          return grads_of({x, bias});
        },
        {.fused_graphs = 0});  // nothing to compute
  }
}

TEST(Rows, OperandsThatLieElsewhereInMemory) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({20, 30}, options), y = near_leaf({30, 20}, options), bias = near_leaf({30}, options);
        const auto z = (x * y.t() + bias).tanh() * y.t().exp() + x.slice(1, 0, 30);
        at::softmax(z * x, -1).pow(2).sum().backward();
        return grads_of({x, y, bias});
      },
      {.units_in_double = 32});  // the gradient of softmax is a difference of nearly equal terms
}

// Leaves of a norm's input and of a pointwise sum, with new and existing gradients; another op also reads one of the values.
TEST(Rows, LeavesOfOneGradientGetBuffersOfTheirOwn) {
  for (const int64_t rows : {6, 3000}) {
    expect_near_grads([&](at::TensorOptions options) {
      const auto a = near_leaf({rows, 20}, options), b = near_leaf({rows, 20}, options), c = near_leaf({rows, 20}, options),
                 d = near_leaf({rows, 20}, options), e = near_leaf({rows, 20}, options);
      const auto sum = a.tanh() + c + d + e;
      const auto loss = (at::layer_norm(sum + b, {20}) * 2).sigmoid().sum();
      loss.backward({}, /*retain_graph=*/true);
      EXPECT_NE(c.grad().data_ptr(), d.grad().data_ptr());
      EXPECT_NE(c.grad().data_ptr(), b.grad().data_ptr());
      EXPECT_NE(e.grad().data_ptr(), d.grad().data_ptr());
      c.mutable_grad().reset();
      loss.backward();
      return grads_of({a, b, c, d, e});
    });
  }
}

// Sums of many rows and of long rows must not lose precision to the number of terms.
TEST(Rows, LongSums) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({20000, 32}, options), bias = near_leaf({32}, options), y = near_leaf({8, 30000}, options);
        const auto one = (x + bias).sigmoid().sum(), two = (at::softmax(y * 2, -1) * y).sigmoid().sum();
        (one + two).backward();
        return grads_of({x, bias, y});
      },
      {.units_in_double = 32});  // of 20,000 and 30,000 terms
}

// A kernel's work is split over as many threads as LibTorch's, by rows and by elements.
TEST(Rows, LargeOnesRunOnAllThreads) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    std::mutex mutex;
    std::set<std::thread::id> seen;
    codegen::cpu::run_ranges(1 << 20, 1 << 12, [&](int64_t, int64_t) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(seen.size(), static_cast<size_t>(threads));
    expect_near_grads(
        [](at::TensorOptions options) {
          const auto x = near_leaf({1000, 201}, options), bias = near_leaf({201}, options);
          (at::layer_norm(x.tanh() * 2, {201}, bias, bias) + bias).sigmoid().sum().backward();
          return grads_of({x, bias});
        },
        {.units_in_double = 32});  // sums of 1,000 terms
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace hindcast::tests::rows_test
