// Short rows that a kernel processes together: results over rows, when no, some or all rows join.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/row_program.h"

namespace hindcast::tests::joined_rows_test {
namespace {

using codegen::Extent;
using Kind = codegen::Reduction::Kind;
using Tensors = std::vector<at::Tensor>;

/// Too few rows to join, exactly enough, odd and prime counts, more than a block has, enough for two threads.
constexpr int64_t kRows[] = {1, 33, 80, 97, 225, 1024, 1031, 9000, 70001};
/// One element, odd lengths, whole vectors, the longest rows that are joined and the shortest that are not.
constexpr int64_t kColumns[] = {1, 3, 16, 31, 64, 255, 256};

template <class Check>
void for_all_sizes(const Check& check) {
  for (const int64_t rows : kRows) {
    for (const int64_t columns : kColumns) {
      if (rows * columns > 5'000'000) continue;
      SCOPED_TRACE(at::IntArrayRef({rows, columns}));
      at::manual_seed(1);
      check(at::DimVector{rows, columns});
    }
  }
}

bool is_same(const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 0, 0, /*equal_nan=*/true); }

TEST(JoinedRows, MaxAndMinAreATens) {
  RowProgram program;
  program.ops = {{"neg", {kX}}};
  program.store(kX, Extent::Columns, Kind::Max);
  program.store(kX, Extent::Columns, Kind::Min);
  program.store(result(0), Extent::Element);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for_all_sizes([&](const at::DimVector& sizes) {
      const at::Tensor x = at::randn(sizes).to(type);
      x[sizes[0] / 2][sizes[1] / 2] = NAN;
      const Tensors ours = program.run(x);
      EXPECT_TRUE(is_same(ours[0], x.amax(0))) << type;
      EXPECT_TRUE(is_same(ours[1], x.amin(0))) << type;
      EXPECT_TRUE(is_same(ours[2], -x)) << type;
    });
  }
}

TEST(JoinedRows, SumsAndMoments) {
  RowProgram program;
  program.store(kX, Extent::Columns, Kind::Sum);
  program.store(kX, Extent::Columns, Kind::Mean);
  program.store(kX, Extent::Columns, Kind::M2);
  for_all_sizes([&](const at::DimVector& sizes) {
    const at::Tensor x = at::randn(sizes, at::kDouble) + 3;
    const Tensors ours = program.run(x);
    const auto [variance, mean] = at::var_mean(x, {0}, 0);
    EXPECT_TRUE(at::allclose(ours[0], x.sum(0), 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[1], mean, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[2], variance * sizes[0], 1e-12, 1e-12));
  });
}

// Operands that are the same for all rows are repeated; leaves that the kernel adds to are joined too.
TEST(JoinedRows, ABiasAndALeaf) {
  for (const auto& [rows, columns] : {std::pair{96L, 16L}, {225L, 31L}, {1024L, 16L}, {1031L, 20L}, {9000L, 64L}}) {
    for (const bool has_grad : {false, true}) {
      SCOPED_TRACE(at::IntArrayRef({rows, columns}));
      expect_near_grads(
          [rows = rows, columns = columns, has_grad](at::TensorOptions options) {
            const auto x = near_leaf({rows, columns}, options), bias = near_leaf({columns}, options), scale = near_leaf({columns}, options);
            if (has_grad) x.mutable_grad() = at::ones_like(x);
            ((x * scale + bias).tanh() * x).sum().backward();
            return Tensors{x.grad(), bias.grad(), scale.grad()};
          },
          {.units_in_double = 64});  // sums over all rows
    }
  }
}

// Results that bypass the caches, with rows left over after the joined ones.
TEST(JoinedRows, OfLargeResults) {
  for (const bool has_grad : {false, true}) {
    expect_near_grads(
        [has_grad](at::TensorOptions options) {
          const auto x = near_leaf({290'323, 31}, options), bias = near_leaf({31}, options);
          if (has_grad) x.mutable_grad() = at::ones_like(x);
          (x + bias).tanh().sum().backward();
          return Tensors{x.grad(), bias.grad()};
        },
        {.steps = 2, .units_in_double = 64});
  }
}

}  // namespace
}  // namespace hindcast::tests::joined_rows_test
