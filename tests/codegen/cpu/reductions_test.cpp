// Reductions of rows, of segments of rows and over all rows, in kernels of hand-built bodies.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/row_program.h"

namespace hindcast::tests::reductions_test {
namespace {

using codegen::Extent;
using Kind = codegen::Reduction::Kind;
using Over = codegen::Reduction::Over;
using Tensors = std::vector<at::Tensor>;

/// Odd lengths, rows of 1, several blocks per row, more rows than a block has, enough for several threads.
const std::vector<at::DimVector> kSizes = {{1, 1}, {3, 1}, {1, 7}, {5, 33}, {7, 1024}, {2, 5001}, {300, 17}, {1031, 130}, {4, 70001}};

bool is_same(const at::Tensor& a, const at::Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, /*equal_nan=*/true); }

TEST(Reductions, MaxAndMinAreATens) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), reduction(Kind::Min, Over::Row)};
  program.store(result(0), Extent::Row);
  program.store(result(1), Extent::Row);
  program.store(kX, Extent::Columns, Kind::Max);
  program.store(kX, Extent::Columns, Kind::Min);
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const auto& sizes : kSizes) {
      SCOPED_TRACE(at::IntArrayRef(sizes));
      at::manual_seed(1);
      const at::Tensor x = at::randn(sizes).to(type);
      for (const double odd : {0.0, double(INFINITY), -double(INFINITY), double(NAN)}) {
        if (odd != 0) x[sizes[0] / 2][sizes[1] / 2] = odd;
        const Tensors ours = program.run(x);
        EXPECT_TRUE(is_same(ours[0], x.amax(1))) << type << " with " << odd;
        EXPECT_TRUE(is_same(ours[1], x.amin(1))) << type << " with " << odd;
        EXPECT_TRUE(is_same(ours[2], x.amax(0))) << type << " with " << odd;
        EXPECT_TRUE(is_same(ours[3], x.amin(0))) << type << " with " << odd;
      }
    }
  }
}

// Also with a mean far larger than the deviations, where a difference of sums of squares would be noise.
TEST(Reductions, WelfordsPairIsExactToSomeUnits) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const auto& sizes : kSizes) {
      for (const double mean : {0.0, 3.0, 1e4}) {
        SCOPED_TRACE(at::IntArrayRef(sizes));
        at::manual_seed(2);
        const at::Tensor x = at::randn(sizes, type) + mean, centred = x.to(at::kDouble) - mean;
        const Tensors ours = moments().run(x);
        for (const int64_t dim : {1, 0}) {
          const size_t first = dim == 1 ? 0 : 2;
          const at::Tensor distance = centred.mean(dim), m2 = (centred - centred.mean(dim, true)).square().sum(dim);
          EXPECT_LE(units(ours[first], distance + mean, at::full_like(distance, mean + 1)), 16) << type << " " << mean << " " << dim;
          // Each intermediate mean is rounded, and weighs as much as its distance from the next: over rows the distance of two numbers,
          // within a row that of two blocks' means, a 32nd of it.
          const double by_rounding = dim == 0 ? 2 * mean : mean / 32;
          EXPECT_LE(units(ours[first + 1], m2, m2 + 1), 64 + by_rounding) << type << " " << mean << " " << dim;
        }
      }
    }
  }
}

// In units of the expected error of such a sum, on average 1.4. Blocks of 256 rows, merged one after the other into one variable, were 2.1
// units off.
TEST(Reductions, SumsOfManyRowsAreNearTheTruth) {
  RowProgram program;
  program.store(kX, Extent::Columns);
  at::manual_seed(1);
  const at::Tensor x = at::randn({20000, 256}), exact = x.to(at::kDouble).sum(0);
  const at::Tensor units = (program.run(x)[0].to(at::kDouble) - exact).abs() / (std::sqrt(20000) * std::numeric_limits<float>::epsilon());
  EXPECT_LE(units.mean().item<double>(), 1.7);
}

TEST(Reductions, WelfordsPairOfEqualNumbersHasNoVariance) {
  const Tensors ours = moments().run(at::full({600, 2100}, 0.1));
  for (const size_t i : {0, 2}) EXPECT_TRUE(is_same(ours[i], at::full_like(ours[i], 0.1)));
  for (const size_t i : {1, 3}) EXPECT_TRUE(is_same(ours[i], at::zeros_like(ours[i])));
}

TEST(Reductions, WelfordsPairOfWhatIsNotFinite) {
  for (const double odd : {double(INFINITY), double(NAN)}) {
    at::Tensor x = at::randn({700, 2100});
    x[300][1500] = odd;
    const Tensors ours = moments().run(x);
    for (const int64_t dim : {1, 0}) {
      const auto [variance, mean] = at::var_mean(x, {dim}, 0);
      EXPECT_TRUE(at::equal(ours[dim == 1 ? 0 : 2].isfinite(), mean.isfinite()));
      EXPECT_TRUE(at::equal(ours[dim == 1 ? 1 : 3].isnan(), variance.isnan()));
    }
  }
}

TEST(Reductions, OfSegmentsAndOfWhatTheyHave) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Segment),
                 reduction(Kind::Min, Over::Segments, result(0)),
                 reduction(Kind::Min, Over::Row),
                 reduction(Kind::Mean, Over::Row),
                 reduction(Kind::M2, Over::Row),
                 reduction(Kind::Mean, Over::Segment),
                 reduction(Kind::Mean, Over::Segments, result(5)),
                 reduction(Kind::Max, Over::Segments, result(5))};
  for (const uint32_t op : {1, 2, 3, 4, 6, 7}) program.store(result(op), Extent::Row);
  program.store(result(0), Extent::Channels, Kind::Max);
  program.store(result(0), Extent::Channels, Kind::Min);
  for (const at::DimVector& sizes : {at::DimVector{1, 2, 3}, {5, 3, 1}, {9, 4, 35}, {300, 5, 7}, {600, 8, 129}, {3, 3, 3000}}) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    at::manual_seed(3);
    const at::Tensor x = at::randn(sizes, at::kDouble);
    const Tensors ours = program.run(x);
    EXPECT_TRUE(is_same(ours[0], x.amax(2).amin(1)));
    EXPECT_TRUE(is_same(ours[1], x.amin({1, 2})));
    const auto [variance, mean] = at::var_mean(x, {1, 2}, 0);
    EXPECT_TRUE(at::allclose(ours[2], mean, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[3], variance * (sizes[1] * sizes[2]), 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[4], mean, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[5], x.mean(2).amax(1), 1e-12, 1e-12));
    EXPECT_TRUE(is_same(ours[6], x.amax({0, 2})));
    EXPECT_TRUE(is_same(ours[7], x.amax(2).amin(0)));
  }
}

// Each block of a long row, and each segment, adds a partial sum: accumulated in one variable, they would lose a digit.
TEST(Reductions, SumsOfManyPartsKeepTheirLastDigits) {
  RowProgram program;
  program.ops = {reduction(Kind::Sum, Over::Row)};
  program.store(result(0), Extent::Row);
  for (const at::DimVector& sizes : {at::DimVector{3, 1, 400'000}, {3, 3000, 40}, {2, 5000, 3}}) {
    at::manual_seed(5);
    const at::Tensor x = at::rand(sizes), sum = x.to(at::kDouble).sum({1, 2});
    EXPECT_LE(units(program.run(x)[0], sum, sum), 1.5) << at::IntArrayRef(sizes);
  }
}

TEST(Reductions, SumsOfManyPartsThatAreNotFinite) {
  RowProgram program;
  program.ops = {reduction(Kind::Sum, Over::Row)};
  program.store(result(0), Extent::Row);
  for (const at::DimVector& sizes : {at::DimVector{3, 1, 5000}, {3, 50, 40}}) {
    for (const double odd : {double(INFINITY), -double(INFINITY), double(NAN), 3e38}) {
      at::Tensor x = at::rand(sizes);
      x.select(2, 7).fill_(odd);
      x.select(2, 0).fill_(odd);
      EXPECT_TRUE(is_same(program.run(x)[0].isfinite(), x.sum({1, 2}).isfinite())) << odd << " " << at::IntArrayRef(sizes);
      EXPECT_TRUE(
          is_same(program.run(x)[0].masked_fill(x.sum({1, 2}).isfinite(), 0), x.sum({1, 2}).masked_fill(x.sum({1, 2}).isfinite(), 0)));
    }
  }
}

// As forwards need it: later passes read the row again.
TEST(Reductions, ASoftmaxIsOneKernel) {
  for (const auto& sizes : kSizes) {
    at::manual_seed(4);
    const at::Tensor x = at::randn(sizes, at::kDouble) * 100;
    EXPECT_TRUE(at::allclose(softmax().run(x)[0], x.softmax(1), 1e-12, 1e-300)) << at::IntArrayRef(sizes);
  }
}

TEST(Reductions, OfNoElementsAreRefused) {
  RowProgram rows, columns;
  rows.ops = {reduction(Kind::Max, Over::Row)};
  rows.store(result(0), Extent::Row);
  columns.store(kX, Extent::Columns, Kind::Min);
  EXPECT_THROW(rows.run(at::empty({3, 0})), std::invalid_argument);
  EXPECT_THROW(columns.run(at::empty({0, 3})), std::invalid_argument);
  EXPECT_EQ(rows.run(at::empty({0, 3}))[0].numel(), 0);
  EXPECT_EQ(columns.run(at::empty({3, 0}))[0].numel(), 0);
}

}  // namespace
}  // namespace hindcast::tests::reductions_test
