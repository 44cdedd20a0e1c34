// Bodies by rows that are built by hand: reductions that no op has alone, in each form of a row kernel.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/row_program.h"

namespace hindcast::tests::cuda {
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

// Each mean on the way is rounded, and counts by how far it lies from the next.
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

// Rows that are fewer than a block has room for, as many, and more; segments of one element, of whole vectors, and of several threads'.
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

// What the second pass reads the first one kept: in shared memory, or not where a row is larger than that.
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
}  // namespace hindcast::tests::cuda
