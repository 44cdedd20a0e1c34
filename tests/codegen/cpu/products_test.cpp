// Matrix products computed by kernels, with the ops that follow them.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "codegen/cpu/product_times.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/captured_groups.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests::products_test {
namespace {

using codegen::cpu::ProductChoice;
/// Each way to compute a product.
class Products : public testing::TestWithParam<ProductChoice> {
 protected:
  void SetUp() override { codegen::cpu::set_product_choice(GetParam()); }
  void TearDown() override { codegen::cpu::set_product_choice(ProductChoice::Measured); }
};

Tensors grads_of(const Tensors& leaves) {
  Tensors grads;
  for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
  return grads;
}

struct Sizes {
  int64_t rows, columns, depth;
};
constexpr std::array<Sizes, 10> kSizes = {
    {{1, 1, 1}, {2, 64, 64}, {64, 2, 64}, {64, 64, 2}, {5, 33, 7}, {13, 70, 19}, {8, 32, 16}, {40, 100, 50}, {17, 16, 129}, {9, 48, 1}}};

std::string name_of(const Sizes& sizes) {
  return std::to_string(sizes.rows) + "x" + std::to_string(sizes.columns) + "x" + std::to_string(sizes.depth);
}

// The backward has products with a transposed factor on either side.
TEST_P(Products, OfAllSizes) {
  for (const Sizes& sizes : kSizes) {
    SCOPED_TRACE(name_of(sizes));
    expect_near_grads([&](at::TensorOptions options) {
      const auto a = near_leaf({sizes.rows, sizes.depth}, options), b = near_leaf({sizes.depth, sizes.columns}, options);
      (a.tanh().mm(b) * 0.5).tanh().pow(2).sum().backward();
      return grads_of({a, b});
    });
  }
}

TEST_P(Products, OfFactorsThatAreTransposedInMemory) {
  for (const Sizes& sizes : kSizes) {
    SCOPED_TRACE(name_of(sizes));
    expect_near_grads([&](at::TensorOptions options) {
      const auto a = near_leaf({sizes.depth, sizes.rows}, options), b = near_leaf({sizes.columns, sizes.depth}, options);
      (a.t().mm(b.t()).tanh() * 0.5).pow(2).sum().backward();
      return grads_of({a, b});
    });
  }
}

TEST_P(Products, WhoseSecondFactorIsCopiedOrWide) {
  constexpr Sizes kRows512BytesApart = {70, 128, 40}, kWiderThanIsFinishedAtOnce = {66, 600, 60}, kCopiedPanelByPanel = {67, 640, 128};
  for (const Sizes& sizes : {kRows512BytesApart, kWiderThanIsFinishedAtOnce, kCopiedPanelByPanel}) {
    SCOPED_TRACE(name_of(sizes));
    const auto program = [&](at::TensorOptions options) {
      const auto a = near_leaf({sizes.rows, sizes.depth}, options), b = near_leaf({sizes.depth, sizes.columns}, options);
      const auto transposed = near_leaf({sizes.columns, sizes.depth}, options);
      ((a.mm(b) + a.mm(transposed.t())) * 0.05).tanh().pow(2).sum().backward();
      return grads_of({a, b, transposed});
    };
    expect_near_grads(program, {.units_in_double = 16});  // long sums
  }
}

// The gradient of `a` has so few columns that it is computed element by element.
TEST_P(Products, OfFewColumns) {
  constexpr std::array<Sizes, 6> kFew = {{{64, 64, 2}, {65, 65, 1}, {7, 79, 2}, {9, 300, 5}, {3, 5000, 4}, {13, 40, 3}}};
  for (const Sizes& sizes : kFew) {
    SCOPED_TRACE(name_of(sizes));
    const auto program = [&](at::TensorOptions options) {
      const auto a = near_leaf({sizes.rows, sizes.depth}, options), b = near_leaf({sizes.depth, sizes.columns}, options);
      (a.mm(b) * 0.05).tanh().pow(2).sum().backward();
      return grads_of({a, b});
    };
    expect_near_grads(program, {.units_in_double = 16});  // long sums
  }
}

TEST_P(Products, OfPartsOfTensors) {
  expect_near_grads([&](at::TensorOptions options) {
    const auto a = near_leaf({20, 40}, options), b = near_leaf({60, 50}, options);
    const auto columns = a.narrow(1, 3, 30), rows = b.narrow(0, 7, 30).narrow(1, 5, 40);
    columns.mm(rows).tanh().pow(2).sum().backward();
    return grads_of({a, b});
  });
  // Neither dim of a factor is contiguous.
  expect_near_grads([&](at::TensorOptions options) {
    const auto a = near_leaf({12, 40, 2}, options), b = near_leaf({40, 9}, options);
    a.select(2, 1).mm(b).tanh().pow(2).sum().backward();
    return grads_of({a, b});
  });
}

TEST_P(Products, OfBatches) {
  for (const bool is_transposed : {false, true}) {
    for (const int64_t batch : {1, 3, 7}) {
      expect_near_grads([&](at::TensorOptions options) {
        const auto a = near_leaf({batch, 9, 20}, options),
                   b = near_leaf({batch, is_transposed ? 35 : 20, is_transposed ? 20 : 35}, options);
        const auto c = near_leaf({batch, 1, 35}, options);
        ((a.bmm(is_transposed ? b.transpose(1, 2) : b) + c).tanh() * 0.5).pow(2).sum().backward();
        return grads_of({a, b, c});
      });
    }
  }
}

TEST_P(Products, WithABiasAlone) {
  const auto function = [](const Tensors& in) { return Tensors{at::addmm(in[0], in[1], in[2])}; };
  for (const at::DimVector& bias : {at::DimVector{21}, {9, 21}, {9, 1}, {1, 1}, {}}) {
    SCOPED_TRACE(at::IntArrayRef(bias));
    const Tensors given = {at::randn(bias), at::randn({9, 14}), at::randn({21, 14}).t()};
    const ForwardProgram program(function, given);
    EXPECT_EQ(program.kernels(), 1U);
    expect_near(program.run(given), function(given), function(as(given, at::kDouble)));
  }
}

// Its second factor is not copied, which would take too much memory.
TEST_P(Products, OfManyTerms) {
  const auto function = [](const Tensors& in) { return Tensors{in[0].mm(in[1]).mul(0.5)}; };
  const Tensors given = {at::randn({3, 40000}), at::randn({5, 40000}).t()};
  expect_near(ForwardProgram(function, given).run(given), function(given), function(as(given, at::kDouble)));
}

// A linear layer over several dims, whose rows are split after the product.
TEST_P(Products, WithRowsOfSeveralDims) {
  const auto program = [&](at::TensorOptions options) {
    const auto x = near_leaf({3, 5, 12}, options), w = near_leaf({20, 12}, options), bias = near_leaf({20}, options);
    const auto other = near_leaf({5, 20}, options), of_batch = near_leaf({3, 1, 1}, options);
    const auto y = at::linear(at::linear(x, w, bias).mul(0.1).tanh() + other * of_batch, w.t());
    (y.tanh() * x).pow(2).sum().backward();
    return grads_of({x, w, bias, other, of_batch});
  };
  expect_near_grads(program, {.units_in_double = 8});  // sums over sums
}

// A factor is also read after the product: its memory must not become the result's.
TEST_P(Products, OfAFactorThatIsReadBehindIt) {
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({24, 24}, options), w = near_leaf({24, 24}, options);
    auto y = x * 1.5;
    for (int i = 0; i < 3; ++i) y = y.mm(w).mul(0.1).tanh() + y;
    y.pow(2).sum().backward();
    return grads_of({x, w});
  });
}

TEST_P(Products, AreAddedToGradients) {
  expect_near_grads([&](at::TensorOptions options) {
    const auto x = near_leaf({6, 10}, options), w = near_leaf({10, 40}, options);
    for (const at::Tensor& leaf : {x, w}) leaf.mutable_grad() = at::ones_like(leaf);
    for (int i = 0; i < 2; ++i) x.mm(w).tanh().pow(2).sum().backward();
    return grads_of({x, w});
  });
}

/// The gradients of the pieces of `x`, which follow from a product, are concatenated.
Tensors gates_behind_a_product(at::IntArrayRef sizes, int64_t dim, const at::TensorOptions& options) {
  const at::Tensor x = near_leaf(sizes, options);
  const auto pieces = (x * 2).chunk(2, dim);
  const at::Tensor both = pieces[0].tanh() * pieces[1].sigmoid();
  const int64_t depth = both.size(-1);
  const at::Tensor weight = near_leaf({depth, depth + 3}, options);
  (both.matmul(weight) * 0.5).sin().sum().backward();
  return grads_of({x, weight});
}

TEST_P(Products, WhoseResultsAreConcatenated) {
  for (const int64_t columns : {2, 12, 34, 64, 140}) {
    SCOPED_TRACE(columns);
    expect_near_grads([&](at::TensorOptions options) { return gates_behind_a_product({7, columns}, 1, options); });
    expect_near_grads([&](at::TensorOptions options) { return gates_behind_a_product({6, columns}, 0, options); });
    expect_near_grads([&](at::TensorOptions options) { return gates_behind_a_product({4, 5, columns}, 2, options); });
    expect_near_grads([&](at::TensorOptions options) { return gates_behind_a_product({4, 5, columns}, 0, options); });
  }
}

TEST_P(Products, OfNothing) {
  for (const Sizes& sizes : {Sizes{0, 4, 3}, {4, 0, 3}, {4, 3, 0}, {0, 0, 0}}) {
    SCOPED_TRACE(name_of(sizes));
    expect_near_grads(
        [&](at::TensorOptions options) {
          const auto a = near_leaf({sizes.rows, sizes.depth}, options), b = near_leaf({sizes.depth, sizes.columns}, options);
          (a.mm(b) + 1).tanh().pow(2).sum().backward();
          return grads_of({a, b});
        },
        {.fused_graphs = 0});
  }
}

TEST_P(Products, WhoseSizesChange) {
  reset();
  Options options = fused_options();
  options.verify = true;
  const auto guard = enable(options);
  const auto w = at::randn({30, 50}).set_requires_grad(true);
  for (const int64_t rows : {3, 8, 21, 64, 1}) {
    const auto x = at::randn({rows, 30});
    w.mutable_grad().reset();
    x.mm(w).tanh().pow(2).sum().backward();
    const at::Tensor ours = w.grad().clone();
    w.mutable_grad().reset();
    {
      const auto exact = w.detach().to(at::kDouble).set_requires_grad(true);
      x.to(at::kDouble).mm(exact).tanh().pow(2).sum().backward();
      EXPECT_TRUE(at::allclose(ours.to(at::kDouble), exact.grad(), 1e-4, 1e-5)) << rows;
    }
  }
  EXPECT_EQ(stats().refused_graphs, 0U);
}

// Columns beyond the last whole vector are multiplied by zeros, which gives NaN with infinities: these must not reach the result.
TEST_P(Products, OfNaNAndInfinities) {
  reset();
  const auto guard = enable(fused_options());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto a = at::randn({5, 6}).set_requires_grad(true), b = at::randn({6, 3}).set_requires_grad(true);
  const auto incoming = at::randn({5, 3});
  incoming.index_put_({at::tensor(1), at::tensor(2)}, at::tensor(kInfinity));
  incoming.index_put_({at::tensor(4), at::tensor(0)}, at::tensor(std::numeric_limits<float>::quiet_NaN()));
  for (int i = 0; i < 3; ++i) {
    a.mutable_grad().reset();
    b.mutable_grad().reset();
    a.mm(b).backward(incoming);
  }
  EXPECT_TRUE(at::allclose(a.grad(), incoming.mm(b.detach().t()), 1e-5, 1e-6, /*equal_nan=*/true));
  EXPECT_TRUE(at::allclose(b.grad(), a.detach().t().mm(incoming), 1e-5, 1e-6, /*equal_nan=*/true));
}

TEST_P(Products, OfSeveralThreadsGiveTheBitsOfOne) {
  const auto a = near_leaf({200, 300}, at::kFloat), b = near_leaf({300, 260}, at::kFloat);
  const auto grads_with = [&](int threads) {
    at::set_num_threads(threads);
    reset();
    const auto guard = enable(fused_options());
    for (int i = 0; i < 2; ++i) {
      a.mutable_grad().reset();
      b.mutable_grad().reset();
      (a.mm(b) * 0.01).tanh().pow(2).sum().backward();
    }
    return grads_of({a, b});
  };
  const int before = at::get_num_threads();
  const Tensors one = grads_with(1), three = grads_with(3);
  at::set_num_threads(before);
  if (GetParam() == ProductChoice::Ours) {
    EXPECT_TRUE(at::equal(one[0], three[0]));
    EXPECT_TRUE(at::equal(one[1], three[1]));
  }
  EXPECT_TRUE(at::allclose(one[0], three[0], 1e-4, 1e-5));
}

// So large that only some rows are timed.
TEST_P(Products, OfLargeTensors) {
  const auto program = [](at::TensorOptions options) {
    const auto a = near_leaf({700, 400}, options), b = near_leaf({400, 300}, options);
    (a.mm(b) * 0.05).tanh().pow(2).sum().backward();
    const auto c = near_leaf({5, 130, 300}, options), d = near_leaf({5, 300, 400}, options);
    (c.bmm(d) * 0.05).tanh().pow(2).sum().backward();
    return grads_of({a, b, c, d});
  };
  expect_near_grads(program, {.fused_graphs = 2, .misses = 2, .units_in_double = 16});  // long sums
}

TEST_P(Products, OfManyThreadsAtOnce) {
  reset();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      const auto guard = enable(fused_options());
      for (const int64_t rows : {4, 9, 4, 17, 9}) {
        const auto x = at::ones({rows, 20}).set_requires_grad(true), w = at::ones({20, 40}).set_requires_grad(true);
        x.mm(w).mul(0.5).sum().backward();
        EXPECT_TRUE(at::equal(x.grad(), at::full({rows, 20}, 20.0)));
        EXPECT_TRUE(at::equal(w.grad(), at::full({20, 40}, 0.5 * static_cast<double>(rows))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(
    By, Products, testing::Values(ProductChoice::Measured, ProductChoice::Ours, ProductChoice::Atens), [](const auto& choice) {
      return std::string(choice.param == ProductChoice::Ours ? "Ours" : choice.param == ProductChoice::Atens ? "Atens" : "Measured");
    });

// A program whose sizes change in every call, as neighbour lists do, is measured for a few classes of sizes.
TEST(ProductTimes, ChangingSizesAreMeasuredByClasses) {
  int runs = 0;
  const auto call = [&](int64_t rows, int64_t columns) {
    const codegen::cpu::ProductSizes sizes{1, rows, columns, 61, /*kind=*/1000};
    const auto count = [&] { ++runs; };
    const bool is_ours = codegen::cpu::is_ours_faster(sizes, count, count);
    const auto known = codegen::cpu::find_choice(sizes);
    if (known) {
      EXPECT_EQ(*known, is_ours);
    }
  };
  for (int64_t rows = 600; rows < 700; ++rows) call(rows, 64);
  EXPECT_GT(runs, 0);
  EXPECT_LE(runs, 3 * 6 * 10);  // classes, measurements of each, runs of a measurement
  const int before = runs;
  for (int64_t rows = 600; rows < 700; ++rows) call(rows, 64);
  EXPECT_LE(runs - before, 60);
  call(600, 63);  // columns that do not fill vectors
  EXPECT_GT(runs, before);
}

TEST(ProductTimes, ClassesAreFew) {
  std::set<int64_t> rows;
  for (int64_t size = 1; size <= 100000; ++size) rows.insert(codegen::cpu::class_of({1, size, 64, 64, 0}).rows);
  EXPECT_LT(rows.size(), 130);
  EXPECT_EQ(codegen::cpu::class_of({1, 1, 64, 64, 0}).rows, 1);
}

TEST(ProductErrors, AreThoseOfATens) {
  codegen::cpu::set_product_choice(ProductChoice::Ours);
  for (const int64_t depth : {16, 700, 3000, 4096}) {
    SCOPED_TRACE(depth);
    reset();
    const auto a = at::randn({40, 64}).set_requires_grad(true), b = at::rand({64, depth}), incoming = at::rand({40, depth});
    const at::Tensor exact = incoming.to(at::kDouble).mm(b.to(at::kDouble).t());
    const auto error_of = [&](const at::Tensor& result) { return (result.to(at::kDouble) - exact).square().mean().sqrt().item<double>(); };
    const at::Tensor by_aten = incoming.mm(b.t());
    const auto guard = enable(fused_options());
    for (int i = 0; i < 2; ++i) {
      a.mutable_grad().reset();
      a.mm(b).backward(incoming);
    }
    EXPECT_EQ(stats().fused_graphs, 1U);
    EXPECT_LE(error_of(a.grad()), 1.1 * error_of(by_aten));
  }
  codegen::cpu::set_product_choice(ProductChoice::Measured);
}

TEST(ProductGroups, TwoProductsAreTwoKernels) {
  const auto groups = groups_of([] {
    const auto x = at::randn({4, 4}).set_requires_grad(true), w = at::randn({4, 4});
    (x.mm(w).tanh() + x.mm(w.t()).sigmoid()).sum().backward();
  });
  size_t products = 0;
  for (const codegen::Group& group : groups) products += group.body.product ? 1 : 0;
  EXPECT_EQ(products, 2U);
}

}  // namespace
}  // namespace hindcast::tests::products_test
