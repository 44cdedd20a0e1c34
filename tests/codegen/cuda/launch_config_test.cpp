// Shapes, and how their kernels are launched.

#include "codegen/cuda/launch_config.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace hindcast::codegen::cuda {

static void PrintTo(const LaunchConfig& config, std::ostream* out) {
  *out << name_of(config.entry) << " grid " << config.grid.x << " x " << config.grid.y << ", block " << config.block.x << " x "
       << config.block.y;
}
static void PrintTo(const RowLaunchConfig& config, std::ostream* out) {
  PrintTo(config.rows, out);
  *out << ", slices " << config.slices << " of " << config.rows_at_once << ", splits " << config.splits << ", shared bytes "
       << config.shared_bytes << ", kept sums " << config.kept_sums;
}

}  // namespace hindcast::codegen::cuda

namespace hindcast::tests {
namespace {

using namespace codegen::cuda;

const Limits kH200 = {};
// Float, two large operands.
const Shape kFloats = {.vector_length = 4, .elements_of_thread = 16, .elements_one_by_one = 8};

TEST(LaunchConfig, Dense) {
  struct Case {
    int64_t numel;
    bool is_aligned;
    LaunchConfig expected;
  };
  for (const Case& c : {Case{1, true, {Entry::DenseFew, {1}, {256}}},
                        {1024, true, {Entry::DenseFew, {1}, {256}}},
                        {1025, true, {Entry::DenseFew, {2}, {256}}},
                        {4096 * 1055, true, {Entry::DenseFew, {4220}, {256}}},
                        {4096 * 1056, true, {Entry::Dense, {1056}, {256}}},
                        {int64_t{1} << 33, true, {Entry::Dense, {1 << 21}, {256}}},
                        {2048, false, {Entry::DenseEach, {1}, {256}}},
                        {int64_t{1} << 26, false, {Entry::DenseEach, {1 << 15}, {256}}}}) {
    EXPECT_EQ(dense_config(c.numel, c.is_aligned, kFloats, kH200), c.expected) << c.numel;
  }
}

TEST(LaunchConfig, Nest) {
  struct Case {
    NestProblem problem;
    LaunchConfig expected;
  };
  for (const Case& c : {Case{{4096, 1024, true}, {Entry::Nest, {4096}, {256}}},
                        {{4096, 1022, true}, {Entry::NestEach, {2044}, {256}}},
                        {{4096, 1024, false}, {Entry::NestEach, {2048}, {256}}},
                        {{1 << 16, 1 << 15, true}, {Entry::Nest, {1 << 21}, {256}}},
                        {{1 << 16, 1 << 15, false}, {Entry::NestAny, {1 << 20}, {256}}},
                        {{1 << 18, 1 << 15, true}, {Entry::NestAny, {1 << 22}, {256}}}}) {
    EXPECT_EQ(nest_config(c.problem, kFloats, kH200), c.expected) << c.problem.outer;
  }
}

RowProblem norm(int64_t rows, int64_t columns, bool is_aligned = true) {
  return {.rows = rows, .columns = columns, .is_aligned = is_aligned, .needs_whole_rows = true};
}

// Threads' vectors span its rows while enough threads remain.
TEST(LaunchConfig, NestOfVectorsInAColumn) {
  Shape shape = kFloats;
  shape.items_of_nest = 4;
  const NestProblem large{.outer = 8192, .inner = 4096, .goes_by_vectors = true, .next = 8192};
  EXPECT_EQ(nest_items(large, shape, kH200), 4);
  EXPECT_EQ(nest_config(large, shape, kH200), (LaunchConfig{Entry::Nest, {8192}, {256}}));
  for (const auto& [next, items] : {std::pair{8190, 2}, {8191, 1}, {1, 1}}) {
    NestProblem odd = large;
    odd.next = next;
    EXPECT_EQ(nest_items(odd, shape, kH200), items) << next;
  }
  EXPECT_EQ(nest_items({.outer = 1056 * 2, .inner = 1024, .goes_by_vectors = true, .next = 32}, shape, kH200), 2);
  EXPECT_EQ(nest_items({.outer = 64, .inner = 1024, .goes_by_vectors = true, .next = 64}, shape, kH200), 1);
}

// Blocks that wait for their turn would run nearly alone: all of them must fit on the card at once.
TEST(LaunchConfig, SlicesByRegisters) {
  RowProblem problem{.rows = 8192, .columns = 4096, .is_aligned = true, .has_results_over_rows = true};
  const auto blocks = [&](int registers) {
    problem.registers[static_cast<size_t>(Entry::Rows)] = registers;
    const RowLaunchConfig config = row_config(problem, kFloats, kH200);
    EXPECT_EQ(config.rows.entry, Entry::Rows);
    return int64_t{config.rows.grid.x} * config.rows.grid.y;
  };
  EXPECT_EQ(blocks(0), 132 * 4);
  EXPECT_EQ(blocks(40), 132 * 4);
  EXPECT_EQ(blocks(64), 132 * 4);
  EXPECT_LE(blocks(65), 132 * 3);
  EXPECT_LE(blocks(80), 132 * 3);
  EXPECT_LE(blocks(88), 132 * 2);
  EXPECT_GT(blocks(255), 0);
}

// A block of 64 x 64 elements took as long as a product of 64 x 64 matrices.
TEST(LaunchConfig, SumsOfColumnsOfFewElements) {
  Shape shape = kFloats;
  shape.elements_one_by_one = 4;
  const auto config = [&](int64_t rows, int64_t columns) {
    return row_config({.rows = rows, .columns = columns, .is_aligned = true, .has_results_over_rows = true}, shape, kH200);
  };
  EXPECT_EQ(config(64, 64), (RowLaunchConfig{{Entry::RowsEach, {1, 4}, {4, 64}}, 0, 64}));
  EXPECT_EQ(config(32, 4096), (RowLaunchConfig{{Entry::RowsEach, {1, 128}, {8, 32}}, 0, 32}));
  EXPECT_EQ(config(256, 64), (RowLaunchConfig{{Entry::RowsEach, {1, 16}, {1, 256}}, 0, 256}));
  EXPECT_EQ(config(1024, 16), (RowLaunchConfig{{Entry::RowsEach, {1, 4}, {1, 256}}, 0, 256}));
  EXPECT_EQ(config(1025, 16).rows.entry, Entry::Rows);  // a thread would have five rows
  EXPECT_EQ(config(32, 132 * 128 + 4).rows.entry, Entry::Rows);
  EXPECT_EQ(config(1, 64).rows.entry, Entry::Rows);  // nothing to sum
}

TEST(LaunchConfig, OfWhatTakesAnyCall) {
  EXPECT_EQ(dense_few_config(4096 * 1056, kFloats), (LaunchConfig{Entry::DenseFew, {4224}, {256}}));
  EXPECT_EQ(nest_any_config(2049, kFloats), (LaunchConfig{Entry::NestAny, {2}, {256}}));
  const RowProblem rows = {.rows = 100, .columns = 32, .is_aligned = true, .kept_bytes = 128};
  EXPECT_EQ(any_row_config(rows, kFloats, kH200), (RowLaunchConfig{{Entry::RowsLongEach, {13}, {32, 8}}}));
  EXPECT_EQ(any_row_config(norm(100000, 10), kFloats, kH200), (RowLaunchConfig{{Entry::RowsLongEach, {6250}, {16, 16}}}));
  EXPECT_EQ(any_row_config(norm(100, 5000), kFloats, kH200), (RowLaunchConfig{{Entry::RowsLongEach, {100}, {512}}}));
  EXPECT_EQ(any_row_config({.rows = 4096, .columns = 33, .has_results_over_rows = true}, kFloats, kH200),
            (RowLaunchConfig{{Entry::RowsLongEach, {64}, {64, 4}}, 256}));
  EXPECT_EQ(any_row_config({.rows = 3, .columns = 33, .has_results_over_rows = true}, kFloats, kH200),
            (RowLaunchConfig{{Entry::RowsLongEach, {1}, {64, 4}}, 3}));
  RowProblem segments = rows;
  segments.goes_by_segments = true;
  EXPECT_EQ(any_row_config(segments, kFloats, kH200), (RowLaunchConfig{{Entry::Segments, {25}, {8, 4}}}));
}

TEST(LaunchConfig, SetsOfTensors) {
  struct Case {
    int64_t numel;
    bool is_aligned;
    int64_t expected;
  };
  for (const Case& c : {Case{1, true, 1},
                        {4096, true, 1},
                        {4097, true, 2},
                        {int64_t{1} << 33, true, 1 << 21},
                        {1, false, 1},
                        {2048, false, 1},
                        {2049, false, 2},
                        {int64_t{1} << 33, false, 1 << 22}}) {
    EXPECT_EQ(blocks_of_set(c.numel, c.is_aligned, kFloats), c.expected) << c.numel << (c.is_aligned ? "" : ", not aligned");
  }
}

RowProblem shared(int64_t rows, int64_t columns) {
  RowProblem problem = norm(rows, columns);
  problem.may_be_split = true;
  return problem;
}
RowProblem column_sums(int64_t rows, int64_t columns) {
  return {.rows = rows, .columns = columns, .is_aligned = true, .has_results_over_rows = true};
}
RowProblem norm_with_columns(int64_t rows, int64_t columns) {
  RowProblem problem = norm(rows, columns);
  problem.has_results_over_rows = true;
  return problem;
}

RowProblem kept(RowProblem problem, int64_t bytes_of_element) {
  problem.kept_bytes = problem.columns * problem.segments * bytes_of_element;
  return problem;
}
RowProblem with_sums(RowProblem problem, int64_t sums) {
  problem.has_results_over_rows = true;
  problem.sums = sums;
  problem.sum_bytes = problem.columns * 4;
  return problem;
}
RowProblem group_norm(int64_t rows, int64_t segments, int64_t columns) {
  return kept(
      {.rows = rows, .segments = segments, .columns = columns, .is_aligned = true, .needs_whole_rows = true, .goes_by_segments = true}, 4);
}

// With half the threads per block, a thread has twice the registers: a row that needs even more is a long one.
TEST(LaunchConfig, RowsOfManyOperands) {
  const Shape many = {.vector_length = 4, .elements_of_thread = 4, .elements_one_by_one = 1, .most_threads_of_row = 256};
  EXPECT_EQ(row_config(norm(100, 1024), many, kH200), (RowLaunchConfig{{Entry::Rows, {100}, {256}}}));
  EXPECT_EQ(row_config(norm(100, 1028), many, kH200), (RowLaunchConfig{{Entry::RowsLong, {100}, {256}}}));
  EXPECT_EQ(row_config(kept(norm(100, 1028), 4), many, kH200), (RowLaunchConfig{{Entry::RowsShared, {100}, {256}}, 0, 1, 0, 4112}));
  EXPECT_EQ(row_config(norm_with_columns(100000, 2048), many, kH200), (RowLaunchConfig{{Entry::RowsLong, {264}, {256}}, 264}));
  EXPECT_EQ(any_row_config(norm(100, 1024), many, kH200), (RowLaunchConfig{{Entry::RowsLongEach, {100}, {256}}}));
}

// A kernel that holds a row in registers always reads a piece of it.
TEST(LaunchConfig, RowsOfNothing) {
  EXPECT_EQ(row_config(norm(5, 0), kFloats, kH200).rows.entry, Entry::RowsLong);
  EXPECT_EQ(row_config(norm(5, 0, false), kFloats, kH200).rows.entry, Entry::RowsLongEach);
  EXPECT_EQ(row_config(column_sums(5, 0), kFloats, kH200).rows.entry, Entry::RowsLong);
}

TEST(LaunchConfig, Rows) {
  struct Case {
    const char* name;
    RowProblem problem;
    RowLaunchConfig expected;
  };
  for (const Case& c : {
           Case{"a row for a thread", norm(1 << 20, 16), {{Entry::Rows, {4096}, {1, 256}}}},
           {"a row for a warp", norm(1 << 16, 512), {{Entry::Rows, {8192}, {32, 8}}}},
           {"a row for two warps", norm(1 << 14, 1024), {{Entry::Rows, {4096}, {64, 4}}}},
           {"few rows: more threads, each with less", norm(128, 1024), {{Entry::Rows, {128}, {256, 1}}}},
           {"one row", norm(1, 64), {{Entry::Rows, {1}, {16, 2}}}},
           {"the longest row in registers", norm(4096, 8192), {{Entry::Rows, {4096}, {512, 1}}}},
           {"a longer one", norm(4096, 8196), {{Entry::RowsLong, {4096}, {512, 1}}}},
           {"a row that is not aligned", norm(1 << 14, 1023, false), {{Entry::RowsEach, {8192}, {128, 2}}}},
           {"a long one", norm(8, 100001, false), {{Entry::RowsLongEach, {8}, {512, 1}}}},
           {"one that shared memory holds", kept(norm(4096, 50304), 4), {{Entry::RowsShared, {4096}, {512, 1}}, 0, 1, 0, 201216}},
           {"one that it does not", kept(norm(4096, 50304), 8), {{Entry::RowsLong, {4096}, {512, 1}}}},
           {"what registers hold", kept(norm(4096, 8192), 4), {{Entry::Rows, {4096}, {512, 1}}}},
           {"kept, not aligned", kept(norm(800, 50257, false), 4), {{Entry::RowsSharedEach, {800}, {512, 1}}, 0, 1, 0, 201028}},
           {"kept, with sums over rows: what the card holds at a time",
            kept(norm_with_columns(1 << 14, 16384), 8),
            {{Entry::RowsShared, {132}, {512, 1}}, 132, 1, 0, 131072}},
           {"sums wait there too", with_sums(kept(norm(2048, 12288), 4), 2), {{Entry::RowsShared, {132}, {512, 1}}, 132, 1, 0, 147456, 2}},
           {"two blocks have room for them",
            with_sums(kept(norm(2048, 8200), 4), 2),
            {{Entry::RowsShared, {264}, {512, 1}}, 264, 1, 0, 98400, 2}},
           {"room for two of three",
            with_sums(kept(norm(2048, 12288), 8), 3),
            {{Entry::RowsShared, {132}, {512, 1}}, 132, 1, 0, 196608, 2}},
           {"room for none", with_sums(kept(norm(2048, 16384), 12), 1), {{Entry::RowsShared, {132}, {512, 1}}, 132, 1, 0, 196608, 0}},
           {"a row for each block: no sums to wait",
            with_sums(kept(norm(264, 12288), 4), 2),
            {{Entry::RowsShared, {264}, {512, 1}}, 264, 1, 0, 49152}},
           {"many small segments: fewer rows at a time",
            group_norm(1 << 14, 64, 64),
            {{Entry::SegmentsShared, {2048}, {16, 8}}, 0, 1, 0, 131072}},
           {"small groups", group_norm(1 << 14, 4, 64), {{Entry::SegmentsShared, {1024}, {16, 16}}, 0, 1, 0, 16384}},
           {"few small groups: fewer at a time", group_norm(512, 4, 64), {{Entry::SegmentsShared, {256}, {16, 2}}, 0, 1, 0, 2048}},
           {"groups", group_norm(512, 4, 1024), {{Entry::SegmentsShared, {512}, {256, 1}}, 0, 1, 0, 16384}},
           {"large groups", group_norm(512, 10, 4096), {{Entry::SegmentsShared, {512}, {512, 1}}, 0, 1, 0, 163840}},
           {"groups that shared memory does not hold", group_norm(512, 40, 4096), {{Entry::Segments, {512}, {256, 1}}}},
           {"one row of a million", shared(1, 1 << 20), {{Entry::RowsSplit, {128}, {512, 1}}, 0, 1, 128}},
           {"a hundred of 32768", shared(100, 1 << 15), {{Entry::RowsSplit, {4, 100}, {512, 1}}, 0, 1, 4}},
           {"rows enough for the card", shared(1000, 1 << 15), {{Entry::RowsLong, {1000}, {512, 1}}}},
           {"columns of few rows: spread over blocks", column_sums(32, 512), {{Entry::RowsEach, {1, 8}, {8, 32}}, 0, 32}},
           {"columns of more", column_sums(4096, 512), {{Entry::Rows, {128, 1}, {32, 8}}, 128, 8}},
           {"columns in tiles", column_sums(1 << 16, 4096), {{Entry::Rows, {66, 8}, {32, 8}}, 66, 8}},
           {"a norm and its weight", norm_with_columns(1 << 14, 1024), {{Entry::Rows, {528, 1}, {64, 4}}, 528, 4}},
           {"a long norm and its weight", norm_with_columns(1 << 14, 16384), {{Entry::RowsLong, {264}, {512, 1}}, 264, 1}},
       }) {
    EXPECT_EQ(row_config(c.problem, kFloats, kH200), c.expected) << c.name;
  }
}

TEST(LaunchConfig, BlocksHaveWholeWarps) {
  for (int64_t rows = 1; rows < 3000; rows = rows * 3 + 1) {
    for (int64_t columns = 1; columns < 200000; columns = columns * 2 + 1) {
      for (const bool whole : {false, true}) {
        for (const bool over_rows : {false, true}) {
          for (const bool by_segments : {false, true}) {
            const auto config =
                row_config({rows, 3, columns, false, whole, over_rows, whole && !over_rows, by_segments, 12 * columns}, kFloats, kH200)
                    .rows;
            const uint32_t threads = config.block.x * config.block.y;
            EXPECT_EQ(threads % 32, 0U);
            EXPECT_LE(threads, config.block.y > 1 ? 256U : 512U);
            EXPECT_EQ(config.block.x & (config.block.x - 1), 0U);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
