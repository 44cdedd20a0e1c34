// Correct reductions and exchanges: their values, and that the emulator reports no error.

#include "tests/cuda_emulator/emulator_test.h"

namespace hindcast::tests::cuda {
namespace {

class ReductionKernel : public EmulatorTest {};

/// A float32 sum's error, for numbers of up to `most`: it rounds at most `count` times.
double tolerance(int count, double most) { return count * most * count * 0x1p-24 + 1e-30; }

TEST_F(ReductionKernel, SumsRowsByShufflesAndSharedMemory) {
  for (const int columns : kSizes) {
    const int rows = 5;
    const auto values = random_values<float>(rows * columns, -1, 1);
    DeviceArray<float> in(values), out(rows);
    launch_with(kernel_of("reductions", "sums_of_rows"), {{rows}, {256}}, in.data(), out.data(), columns);
    for (int row = 0; row < rows; ++row) {
      double expected = 0;
      for (int i = 0; i < columns; ++i) expected += values[row * columns + i];
      ASSERT_NEAR(out.values()[row], expected, tolerance(columns / 256 + 11, 64)) << columns;
    }
  }
}

TEST_F(ReductionKernel, SumsColumnsInTwoStages) {
  for (const int rows : kSizes) {
    const int columns = 33, rows_of_block = 128;
    const auto values = random_values<float>(rows * columns, -1, 1);
    const int parts = blocks_for(rows, rows_of_block);
    DeviceArray<float> in(values), part_sums(parts * columns), out(columns);
    launch_with(kernel_of("reductions", "sums_of_columns_parts"), {{2, uint32_t(parts)}, {32, 8}}, in.data(), part_sums.data(), rows,
                columns, rows_of_block);
    launch_with(kernel_of("reductions", "sums_of_columns"), {{2}, {32}}, part_sums.data(), out.data(), parts, columns);
    for (int column = 0; column < columns; ++column) {
      double expected = 0;
      for (int row = 0; row < rows; ++row) expected += values[row * columns + column];
      ASSERT_NEAR(out.values()[column], expected, tolerance(16 + 3 + parts, 64)) << rows;
    }
  }
}

TEST_F(ReductionKernel, AddsByAtomicsFromAllBlocks) {
  for (const int n : kSizes) {
    DeviceArray<int> in(std::vector<int>(n, 3)), out(std::vector<int>{1});
    launch_with(kernel_of("reductions", "sum_by_atomics"), {{blocks_for(n, 96)}, {96}}, in.data(), out.data(), n);
    EXPECT_EQ(out.values()[0], 3 * n + 1);
  }
}

class ExchangeKernel : public EmulatorTest {};

TEST_F(ExchangeKernel, TurnsAroundByDynamicSharedMemory) {
  for (const int n : kSizes) {
    const auto values = random_values<int>(n, -1000, 1000);
    DeviceArray<int> in(values), out(n);
    launch_with(kernel_of("exchange", "turn_around"), {{blocks_for(n, 96)}, {96}, 96 * sizeof(int)}, in.data(), out.data(), n);
    const auto results = out.values();
    for (int i = 0; i < n; ++i) {
      const int start = i / 96 * 96, end = std::min(start + 96, n);
      ASSERT_EQ(results[i], values[start + end - 1 - i]) << i << " of " << n;
    }
  }
}

TEST_F(ExchangeKernel, NeedsOnlyABarrierOfTheWarpWithinIt) {
  for (const int n : kSizes) {
    const auto values = random_values<float>(n, -1, 1);
    DeviceArray<float> in(values), out(n);
    launch_with(kernel_of("exchange", "neighbours"), {{blocks_for(n, 256)}, {256}}, in.data(), out.data(), n);
    const auto results = out.values();
    for (int i = 0; i < n; ++i) ASSERT_EQ(results[i], values[i] + ((i ^ 1) < n ? values[i ^ 1] : 0.0f)) << i << " of " << n;
  }
}

TEST_F(ExchangeKernel, ShufflesDoublesAndVotesByHalfWarps) {
  DeviceArray<double> sums(64);
  DeviceArray<unsigned> votes(64);
  launch_with(kernel_of("exchange", "of_lanes"), {{1}, {64}}, sums.data(), votes.data());
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32;
    EXPECT_EQ(sums.values()[i], lane * (lane + 1) / 2);
    EXPECT_EQ(votes.values()[i], lane < 16 ? 0x9249u : 2u);
  }
}

}  // namespace
}  // namespace hindcast::tests::cuda
