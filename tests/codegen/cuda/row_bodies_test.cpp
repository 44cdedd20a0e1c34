// Hand-built row bodies: reductions that no op has alone, in each form of a row kernel.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/row_program.h"

namespace hindcast::tests::cuda::row_bodies_test {
namespace {

using codegen::Extent;
using Kind = codegen::Reduction::Kind;
using Over = codegen::Reduction::Over;
using Tensors = std::vector<at::Tensor>;
using Names = std::vector<std::string>;

class RowBodies : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(1);
  }
};

Tensors run(const RowProgram& program, const at::Tensor& x, const Names& kernels) {
  take_launched();
  Tensors results = program.run(x);
  EXPECT_EQ(take_launched(), kernels);
  return results;
}

struct Case {
  at::DimVector sizes;
  Names kernels;
};
const std::vector<Case> kMatrices = {{{1, 1}, {"rows_each"}},
                                     {{3, 1}, {"rows_each"}},
                                     {{1, 7}, {"rows_each"}},
                                     {{5, 33}, {"rows_each"}},
                                     {{5, 64}, {"rows"}},
                                     {{300, 17}, {"rows_each", "merge_slices"}},
                                     {{1031, 132}, {"rows", "merge_slices"}},
                                     {{9, 20000}, {"rows_long", "merge_slices"}},
                                     {{9, 20001}, {"rows_long_each", "merge_slices"}}};

bool is_same(const at::Tensor& a, const at::Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, /*equal_nan=*/true); }

// Each intermediate mean is rounded, and weighs as much as its distance from the next.
TEST_F(RowBodies, WelfordsPair) {
  for (const auto& [sizes, kernels] : kMatrices) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      for (const double mean : {0.0, 1e4}) {
        SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " " << type << " around " << mean);
        const at::Tensor x = at::randn(sizes, type) + mean, centred = x.to(at::kDouble) - mean;
        const Tensors ours = run(moments(), x, kernels);
        for (const int64_t dim : {1, 0}) {
          const size_t first = dim == 1 ? 0 : 2;
          const at::Tensor distance = centred.mean(dim), m2 = (centred - centred.mean(dim, true)).square().sum(dim);
          EXPECT_LE(units(ours[first], distance + mean, at::full_like(distance, mean + 1)), 16) << dim;
          EXPECT_LE(units(ours[first + 1], m2, m2 + 1), 64 + 2 * mean) << dim;
        }
      }
    }
  }
}

TEST_F(RowBodies, WelfordsPairOfEqualNumbersHasNoVariance) {
  for (const auto& [sizes, kernels] : kMatrices) {
    const Tensors ours = run(moments(), at::full(sizes, 0.1f), kernels);
    for (const size_t i : {0, 2}) EXPECT_TRUE(is_same(ours[i], at::full_like(ours[i], 0.1f))) << at::IntArrayRef(sizes);
    for (const size_t i : {1, 3}) EXPECT_TRUE(is_same(ours[i], at::zeros_like(ours[i]))) << at::IntArrayRef(sizes);
  }
}

TEST_F(RowBodies, WelfordsPairOfWhatIsNotFinite) {
  for (const auto& [sizes, kernels] : kMatrices) {
    if (sizes[0] == 1 || sizes[1] == 1) continue;
    for (const double odd : {double(INFINITY), double(NAN)}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " with " << odd);
      at::Tensor x = at::randn(sizes);
      x[sizes[0] / 2][sizes[1] / 2] = odd;
      const Tensors ours = run(moments(), x, kernels);
      for (const int64_t dim : {1, 0}) {
        const auto [variance, mean] = at::var_mean(x, {dim}, 0);
        EXPECT_TRUE(at::equal(ours[dim == 1 ? 0 : 2].isfinite(), mean.isfinite())) << dim;
        EXPECT_TRUE(at::equal(ours[dim == 1 ? 1 : 3].isnan(), variance.isnan())) << dim;
      }
    }
  }
}

TEST_F(RowBodies, LargestAndSmallest) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), reduction(Kind::Min, Over::Row)};
  for (const uint32_t op : {0, 1}) program.store(result(op), Extent::Row);
  for (const Kind kind : {Kind::Max, Kind::Min}) program.store(kX, Extent::Columns, kind);
  for (const auto& [sizes, kernels] : kMatrices) {
    for (const double odd : {0.0, double(INFINITY), -double(INFINITY), double(NAN)}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " with " << odd);
      at::Tensor x = at::randn(sizes);
      if (odd != 0) x[sizes[0] / 2][sizes[1] / 2] = odd;
      const Tensors ours = run(program, x, kernels);
      EXPECT_TRUE(is_same(ours[0], x.amax(1)) && is_same(ours[1], x.amin(1)));
      EXPECT_TRUE(is_same(ours[2], x.amax(0)) && is_same(ours[3], x.amin(0)));
    }
  }
}

// Fewer rows than a block has room for, as many, and more; segments of one element, of whole vectors, and of several threads.
TEST_F(RowBodies, Segments) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Segment),  reduction(Kind::Min, Over::Segments, result(0)),
                 reduction(Kind::Mean, Over::Row),     reduction(Kind::M2, Over::Row),
                 reduction(Kind::Mean, Over::Segment), reduction(Kind::Max, Over::Segments, result(4))};
  for (const uint32_t op : {1, 2, 3, 5}) program.store(result(op), Extent::Row);
  for (const Kind kind : {Kind::Max, Kind::Min}) program.store(result(0), Extent::Channels, kind);
  for (const Case& c : {Case{{1, 2, 3}, {"segments_each", "merge_slices"}},
                        {{5, 3, 1}, {"segments_each", "merge_slices"}},
                        {{3, 2, 40}, {"segments", "merge_slices"}},
                        {{9, 4, 35}, {"segments_each", "merge_slices"}},
                        {{300, 5, 8}, {"segments", "merge_slices"}},
                        {{600, 8, 129}, {"segments_each", "merge_slices"}},
                        {{3, 3, 3000}, {"segments", "merge_slices"}}}) {
    SCOPED_TRACE(at::IntArrayRef(c.sizes));
    const at::Tensor x = at::randn(c.sizes, at::kDouble);
    const Tensors ours = run(program, x, c.kernels);
    EXPECT_TRUE(is_same(ours[0], x.amax(2).amin(1)));
    const auto [variance, mean] = at::var_mean(x, {1, 2}, 0);
    EXPECT_TRUE(at::allclose(ours[1], mean, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[2], variance * (c.sizes[1] * c.sizes[2]), 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(ours[3], x.mean(2).amax(1), 1e-12, 1e-12));
    EXPECT_TRUE(is_same(ours[4], x.amax({0, 2})) && is_same(ours[5], x.amax(2).amin(0)));
  }
}

// The second pass reads what the first one kept: in shared memory, unless a row is larger than that.
TEST_F(RowBodies, ReadTwice) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), {"sub", {kX, result(0)}}, reduction(Kind::Min, Over::Row, result(1))};
  program.store(result(2), Extent::Row);
  for (const Case& c : {Case{{7, 100}, {"rows"}},
                        {{9, 20000}, {"rows_shared"}},
                        {{9, 20001}, {"rows_shared_each"}},
                        {{9, 30000}, {"rows_long"}},
                        {{9, 30001}, {"rows_long_each"}},
                        {{1, 30001}, {"rows_split_each", "rows_split_each", "rows_split_each"}}}) {
    SCOPED_TRACE(at::IntArrayRef(c.sizes));
    const at::Tensor x = at::randn(c.sizes, at::kDouble);
    EXPECT_TRUE(is_same(run(program, x, c.kernels)[0], x.amin(1) - x.amax(1)));
  }
}

// Shared memory holds sums of columns next to the rows, as many as fit: all four, three, one, none. Two blocks share the rows.
TEST_F(RowBodies, SumsOfColumnsBesideKeptRows) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row), {"sub", {kX, result(0)}}};
  program.store(kX, Extent::Columns, Kind::Mean);
  program.store(kX, Extent::Columns, Kind::M2);
  program.store(result(1), Extent::Element);
  program.store(kX, Extent::Columns, Kind::Max);
  program.store(result(1), Extent::Columns);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t columns : {8200, 9001, 11000, 14001, 20000, 28001, 36000}) {
      const std::string kernel = columns % 8 == 0 ? "rows_shared" : "rows_shared_each";
      if (columns * c10::elementSize(type) > (size_t{220} << 10)) continue;
      SCOPED_TRACE(testing::Message() << columns << " " << type);
      const at::Tensor x = at::randn({7, columns}, type), exact = x.to(at::kDouble), distance = x - x.amax(1, true);
      const Tensors ours = run(program, x, {kernel, "merge_slices"});
      const double unit = type == at::kFloat ? 1e-5 : 1e-13;
      const auto [variance, mean] = at::var_mean(exact, {0}, 0);
      EXPECT_TRUE(at::allclose(ours[0].to(at::kDouble), mean, unit, unit));
      EXPECT_TRUE(at::allclose(ours[1].to(at::kDouble), variance * 7, unit, unit));
      EXPECT_TRUE(is_same(ours[2], distance) && is_same(ours[3], x.amax(0)));
      EXPECT_TRUE(at::allclose(ours[4].to(at::kDouble), distance.to(at::kDouble).sum(0), unit, unit));
    }
  }
}

// A row that is not in registers is read twice: once for both numbers, and once for the elements.
const std::vector<Case> kOfSoftmax = {{{7, 100}, {"rows"}},
                                      {{9, 101}, {"rows_each"}},
                                      {{9, 20000}, {"rows_shared"}},
                                      {{9, 20001}, {"rows_shared_each"}},
                                      {{70, 60000}, {"rows_long"}},
                                      {{70, 60001}, {"rows_long_each"}},
                                      {{1, 60000}, {"rows_split", "rows_split", "rows_split"}},
                                      {{1, 60001}, {"rows_split_each", "rows_split_each", "rows_split_each"}}};

TEST_F(RowBodies, OnlineSoftmax) {
  for (const auto& [sizes, kernels] : kOfSoftmax) {
    for (const double rises : {0.0, 160.0}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " rises by " << rises);
      const at::Tensor x = at::randn(sizes) + at::linspace(-rises / 2, rises / 2, sizes[1]);
      const Tensors ours = run(softmax(), x, kernels);
      const at::Tensor largest = x.amax(1), exact = x.to(at::kDouble), sum = (exact - exact.amax(1, true)).exp().sum(1);
      EXPECT_TRUE(is_same(ours[1], largest));
      EXPECT_LE(units(ours[2], sum, sum), 16);
      EXPECT_LE(units(ours[0], exact.softmax(1), exact.softmax(1) + 1e-30), 32);
    }
  }
}

// Each element is the largest so far. Rescaling the sum each time would cost 27 units in the second row.
TEST_F(RowBodies, OnlineSoftmaxOfARowThatRisesSlowly) {
  for (const Case& c : {Case{{3, 60000}, {"rows_long"}}, {{3, 262145}, {"rows_long_each"}}, {{3, 20001}, {"rows_shared_each"}}}) {
    for (const double rise : {0.1, 10.0}) {
      const at::Tensor x = at::linspace(0, rise, c.sizes[1]).expand(c.sizes).contiguous(), exact = x.to(at::kDouble);
      const at::Tensor sum = (exact - exact.amax(1, true)).exp().sum(1);
      EXPECT_LE(units(run(softmax(), x, c.kernels)[2], sum, sum), 8) << at::IntArrayRef(c.sizes) << " by " << rise;
    }
  }
}

// Equal numbers round the same way each time: without the compensation term this is 37 units off.
TEST_F(RowBodies, OnlineSoftmaxOfEqualNumbers) {
  at::Tensor x = at::full({3, 262145}, 8.05);
  x.narrow(1, 0, 4096).fill_(0.1);
  const at::Tensor exact = x.to(at::kDouble), sum = (exact - exact.amax(1, true)).exp().sum(1);
  EXPECT_LE(units(run(softmax(), x, {"rows_long_each"})[2], sum, sum), 4);
}

// Two sums with one maximum, other ops of a body, and each dtype.
TEST_F(RowBodies, OnlineSoftmaxBesideOthers) {
  RowProgram program = softmax();
  program.ops.push_back({"isinf", {result(0)}});
  program.ops.push_back({"where", {result(5), result(5), result(0)}});
  program.ops.push_back({"sub", {kX, result(6)}});
  program.ops.push_back({"exp", {result(7)}});
  program.ops.push_back(reduction(Kind::Sum, Over::Row, result(8)));
  program.ops.push_back(reduction(Kind::Min, Over::Row));
  program.store(result(9), Extent::Row);
  program.store(result(10), Extent::Row);
  program.store(kX, Extent::Columns, Kind::Max);
  for (const Case& c : {Case{{9, 20001}, {"rows_shared_each", "merge_slices"}},
                        {{9, 20000}, {"rows_shared", "merge_slices"}},
                        {{9, 120000}, {"rows_long", "merge_slices"}}}) {
    for (const at::ScalarType type : {at::kHalf, at::kFloat, at::kDouble}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(c.sizes) << " " << type);
      const at::Tensor x = at::randn(c.sizes, type), exact = x.to(at::kDouble), sum = (exact - exact.amax(1, true)).exp().sum(1);
      const Tensors ours = run(program, x, c.kernels);
      const double unit = type == at::kHalf ? 1e-3 : type == at::kFloat ? 1e-6 : 1e-14;
      EXPECT_TRUE(at::allclose(ours[0].to(at::kDouble), exact.softmax(1), unit, 1e-7));
      EXPECT_TRUE(is_same(ours[1], x.amax(1)) && is_same(ours[4], x.amin(1)) && is_same(ours[5], x.amax(0)));
      for (const size_t i : {2, 3}) EXPECT_TRUE(at::allclose(ours[i].to(at::kDouble), sum, unit, 0)) << i;
    }
  }
}

TEST_F(RowBodies, OnlineSoftmaxBySegments) {
  RowProgram program = softmax();
  program.ops.push_back(reduction(Kind::Max, Over::Segment, result(2)));
  program.store(result(5), Extent::Channels, Kind::Max);
  for (const Case& c : {Case{{5, 3, 1}, {"segments_shared_each", "merge_slices"}},
                        {{300, 5, 8}, {"segments_shared", "merge_slices"}},
                        {{3, 3, 21000}, {"segments", "merge_slices"}}}) {
    SCOPED_TRACE(at::IntArrayRef(c.sizes));
    const at::Tensor x = at::randn(c.sizes), exact = x.to(at::kDouble), powers = (exact - exact.amax({1, 2}, true)).exp();
    const Tensors ours = run(program, x, c.kernels);
    EXPECT_TRUE(at::allclose(ours[0].to(at::kDouble), powers / powers.sum({1, 2}, true), 1e-5, 1e-9));
    EXPECT_TRUE(is_same(ours[1], x.amax({1, 2})));
    EXPECT_TRUE(at::allclose(ours[2].to(at::kDouble), powers.sum({1, 2}), 1e-5, 0));
    EXPECT_TRUE(at::allclose(ours[3].to(at::kDouble), powers.amax({0, 2}), 1e-5, 0));
  }
}

// The powers may be infinite where the maximum is not: the sum then has a NaN, of which the maximum shows nothing.
TEST_F(RowBodies, PowersFromTheSmallestAreNotOnline) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row),
                 reduction(Kind::Min, Over::Row),
                 {"sub", {kX, result(1)}},
                 {"exp", {result(2)}},
                 reduction(Kind::Sum, Over::Row, result(3))};
  program.store(result(0), Extent::Row);
  program.store(result(4), Extent::Row);
  at::Tensor x = at::randn({9, 20001});
  x[1][7] = -INFINITY;
  const at::Tensor expected = (x - x.amin(1, true)).exp().sum(1);
  EXPECT_TRUE(at::allclose(run(program, x, {"rows_shared_each"})[1], expected, 1e-5, 0, /*equal_nan=*/true));
}

TEST_F(RowBodies, OnlineSoftmaxOfWhatIsNotFinite) {
  const double inf = INFINITY;
  for (const auto& [sizes, kernels] : kOfSoftmax) {
    for (const double odd : {inf, -inf, double(NAN)}) {
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " with " << odd);
      at::Tensor x = at::randn(sizes);
      x[sizes[0] / 2].slice(0, 0, sizes[1] / 2).fill_(odd);  // whole vectors, threads, and blocks that share the row
      x[0][sizes[1] - 1] = odd;
      x[sizes[0] - 1][0] = odd;
      const Tensors ours = run(softmax(), x, kernels);
      const at::Tensor expected = x.softmax(1);
      EXPECT_TRUE(is_same(ours[1], x.amax(1)));
      EXPECT_TRUE(at::equal(ours[2].isnan(), expected.isnan().any(1)));
      EXPECT_TRUE(at::allclose(ours[0], expected, 1e-5, 1e-9, /*equal_nan=*/true));
    }
    const Tensors ours = run(softmax(), at::full(sizes, -inf), kernels);
    EXPECT_TRUE(ours[2].isnan().all().item<bool>()) << at::IntArrayRef(sizes);
    EXPECT_TRUE(ours[0].isnan().all().item<bool>()) << at::IntArrayRef(sizes);
  }
}

// What logsumexp uses for an infinite maximum: then the powers are relative to 0. A long row is read once, so nothing of it is kept.
TEST_F(RowBodies, OnlineLogSumExp) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row),
                 {"isinf", {result(0)}},
                 {"sub", {result(0), result(0)}},
                 {"where", {result(1), result(1), result(0)}},  // 1 in place of 0
                 {"sub", {kX, result(3)}},
                 {"exp", {result(4)}},
                 reduction(Kind::Sum, Over::Row, result(5)),
                 {"log", {result(6)}},
                 {"add", {result(7), result(3)}}};
  program.store(result(8), Extent::Row);
  for (const Case& c :
       {Case{{7, 100}, {"rows"}}, {{9, 101}, {"rows_each"}}, {{9, 20000}, {"rows_long"}}, {{9, 20001}, {"rows_long_each"}}}) {
    const auto& [sizes, kernels] = c;
    at::Tensor x = at::randn(sizes);
    x[0].fill_(-INFINITY);
    x[1][sizes[1] / 2] = INFINITY;
    x[2][sizes[1] / 3] = -INFINITY;
    x[3][sizes[1] / 4] = NAN;
    EXPECT_TRUE(at::allclose(run(program, x, kernels)[0], x.logsumexp(1), 1e-5, 1e-5, /*equal_nan=*/true)) << at::IntArrayRef(sizes);
  }
}

TEST_F(RowBodies, SegmentsReadTwice) {
  RowProgram program;
  program.ops = {reduction(Kind::Max, Over::Row),
                 {"sub", {kX, result(0)}},
                 reduction(Kind::Min, Over::Row, result(1)),
                 reduction(Kind::Max, Over::Segment, result(1))};
  program.store(result(2), Extent::Row);
  program.store(result(3), Extent::Channels, Kind::Max);
  for (const Case& c : {Case{{1, 2, 3}, {"segments_shared_each", "merge_slices"}},
                        {{300, 5, 8}, {"segments_shared", "merge_slices"}},
                        {{600, 8, 129}, {"segments_shared_each", "merge_slices"}},
                        {{3, 3, 3000}, {"segments_shared", "merge_slices"}},
                        {{3, 3, 10000}, {"segments", "merge_slices"}},
                        {{3, 3, 10001}, {"segments_each", "merge_slices"}}}) {
    SCOPED_TRACE(at::IntArrayRef(c.sizes));
    const at::Tensor x = at::randn(c.sizes, at::kDouble), below = x - x.amax({1, 2}, true);
    const Tensors ours = run(program, x, c.kernels);
    EXPECT_TRUE(is_same(ours[0], below.amin({1, 2})));
    EXPECT_TRUE(is_same(ours[1], below.amax({0, 2})));
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda::row_bodies_test
