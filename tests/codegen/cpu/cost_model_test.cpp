// What pays on a CPU: shapes on both sides of each threshold, and the choice.

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

#include "codegen/cpu/cost_model.h"

namespace hindcast::tests {
namespace {

using codegen::ProductShape;
using codegen::RowForward;
using codegen::RowShape;
using codegen::SegmentedNorm;
using codegen::SingleOp;
using codegen::cpu::cost_model;

enum class Choice { Kernel, Aten };
std::ostream& operator<<(std::ostream& out, Choice choice) { return out << (choice == Choice::Kernel ? "a kernel" : "ATen"); }

Choice choice(bool is_worth_it) { return is_worth_it ? Choice::Kernel : Choice::Aten; }

struct RowCase {
  const char* name;
  RowShape rows;
  Choice expected;
};

/// Contiguous rows.
RowShape plain_sum(int64_t rows, int64_t row) { return {.numel = rows * row, .row = row, .neighbours = row}; }
RowShape row_op(int64_t rows, int64_t row) { return {.numel = rows * row, .row = row, .neighbours = row, .is_row_op = true}; }
/// Each row consists of separate pieces.
RowShape row_op_in_pieces(int64_t rows, int64_t pieces, int64_t neighbours) {
  return {.numel = rows * pieces * neighbours, .row = pieces * neighbours, .neighbours = neighbours, .is_row_op = true};
}

TEST(CostModel, Rows) {
  const std::vector<RowCase> cases = {
      {"short rows of a small domain", plain_sum(4096 / 2, 2), Choice::Kernel},
      {"short rows of a larger one", plain_sum(4096 / 2 + 1, 2), Choice::Kernel},
      {"a row of 15", plain_sum(10000, 15), Choice::Kernel},
      {"a row of 15 in pieces", row_op_in_pieces(10000, 15, 1), Choice::Aten},
      {"a small row in pieces", row_op_in_pieces(64, 15, 1), Choice::Kernel},
      {"a row of 16", plain_sum(10000, 16), Choice::Kernel},
      {"the longest row for one thread, alone", plain_sum(1, 1 << 16), Choice::Kernel},
      {"a longer row, alone", plain_sum(1, (1 << 16) + 1), Choice::Aten},
      {"seven longer rows", plain_sum(7, (1 << 16) + 1), Choice::Aten},
      {"eight longer rows", plain_sum(8, (1 << 16) + 1), Choice::Kernel},
      {"a layer norm", row_op(4096, 1024), Choice::Kernel},
      {"a softmax over 32 classes", row_op(4096, 32), Choice::Kernel},
      {"a softmax over 10 classes, small", row_op(64, 10), Choice::Kernel},
      {"a softmax over 10 classes, large", row_op(4096, 10), Choice::Kernel},

      // As in a batch norm: a channel's elements are contiguous within one image.
      {"few vectors of a cached row of 4096", row_op_in_pieces(8, 1 << 7, 32), Choice::Kernel},
      {"few vectors of a longer row", row_op_in_pieces(4, (1 << 7) + 1, 32), Choice::Aten},
      {"few vectors of a norm that no cache holds", row_op_in_pieces(64, 1 << 6, 32), Choice::Aten},
      {"few vectors of a norm of 2^15 elements, in cached rows", row_op_in_pieces(16, 1 << 6, 32), Choice::Kernel},
      {"few vectors of one row more", row_op_in_pieces(17, 1 << 6, 32), Choice::Aten},
      {"vectors enough", row_op_in_pieces(64, 1 << 6, 64), Choice::Kernel},
      {"neighbours that fill no vectors", row_op_in_pieces(64, 1 << 6, 49), Choice::Kernel},
      {"single elements", row_op_in_pieces(64, 1 << 8, 1), Choice::Kernel},
      {"few vectors of a plain sum's cached rows", {1 << 20, 4096, 32, false}, Choice::Kernel},
      {"few vectors of a plain sum's longer rows", {1 << 20, 8192, 32, false}, Choice::Aten},
  };
  for (const RowCase& row : cases) EXPECT_EQ(choice(cost_model().is_worth_it(row.rows)), row.expected) << row.name;
}

TEST(CostModel, SegmentedNorms) {
  struct Case {
    const char* name;
    SegmentedNorm norm;
    Choice expected;
  };
  constexpr int64_t kLarge = 1 << 20;
  const std::vector<Case> cases = {
      {"whole vectors", {kLarge, 32, at::kFloat, true}, Choice::Aten},
      {"whole vectors without a weight", {kLarge, 32, at::kFloat, false}, Choice::Kernel},
      {"whole vectors, 32768 elements", {32768, 32, at::kFloat, true}, Choice::Kernel},
      {"whole vectors, one element more", {32769, 32, at::kFloat, true}, Choice::Aten},
      {"the longest segment of ATen's", {kLarge, 56, at::kFloat, true}, Choice::Aten},
      {"a long segment", {kLarge, 64, at::kFloat, true}, Choice::Kernel},
      {"no whole vector", {kLarge, 7, at::kFloat, true}, Choice::Kernel},
      {"one vector", {kLarge, 8, at::kFloat, true}, Choice::Aten},
      {"a rest that is small: 1 of 49", {kLarge, 49, at::kFloat, true}, Choice::Kernel},
      {"a rest of a sixth: 3 of 19", {kLarge, 19, at::kDouble, true}, Choice::Kernel},
      {"a rest of more than a sixth: 4 of 20", {kLarge, 20, at::kDouble, true}, Choice::Aten},
      {"bfloat16", {kLarge, 49, at::kBFloat16, true}, Choice::Aten},
      {"half, no whole vector", {kLarge, 7, at::kHalf, true}, Choice::Aten},
      {"half, a long segment", {kLarge, 64, at::kHalf, true}, Choice::Kernel},
      {"half, few elements", {32768, 49, at::kHalf, true}, Choice::Kernel},
  };
  for (const Case& row : cases) EXPECT_EQ(choice(cost_model().is_worth_it(row.norm)), row.expected) << row.name;
}

SingleOp forward(RowForward of, at::ScalarType type, int64_t row) {
  return {.is_row_op = true, .bytes = 1 << 24, .forward = of, .type = type, .row = row};
}

TEST(CostModel, Products) {
  struct Case {
    const char* name;
    ProductShape product;
    Choice expected;
  };
  const std::vector<Case> cases = {
      {"sums of 4096 products", {.rows = 8, .columns = 8, .depth = 4096}, Choice::Kernel},
      {"longer sums", {.rows = 8, .columns = 8, .depth = 4097}, Choice::Aten},
      {"sums of none", {.rows = 8, .columns = 8, .depth = 0}, Choice::Aten},
      {"16-bit floats", {.rows = 8, .columns = 8, .depth = 64, .type = at::kBFloat16}, Choice::Aten},
  };
  for (const Case& row : cases) EXPECT_EQ(choice(cost_model().is_worth_it(row.product)), row.expected) << row.name;
}

TEST(CostModel, SingleOps) {
  struct Case {
    const char* name;
    SingleOp op;
    Choice expected;
  };
  constexpr int64_t kMiB = 1 << 20;
  const std::vector<Case> cases = {
      {"a pointwise op below 1 MiB", {.is_pointwise = true, .bytes = kMiB - 1}, Choice::Aten},
      {"a pointwise op of 1 MiB", {.is_pointwise = true, .bytes = kMiB}, Choice::Kernel},
      {"a small pointwise op that reads through zeros", {.is_pointwise = true, .reads_padded = true, .bytes = 4}, Choice::Kernel},
      {"a small norm", {.is_row_op = true, .bytes = 4}, Choice::Kernel},
      {"a large sum", {.bytes = 64 * kMiB}, Choice::Aten},
      {"a norm's forward", forward(RowForward::Norm, at::kFloat, 4096), Choice::Aten},
      {"the same of doubles", forward(RowForward::Norm, at::kDouble, 4096), Choice::Aten},
      {"the same of bfloat16", forward(RowForward::Norm, at::kBFloat16, 64), Choice::Kernel},
      {"a softmax", forward(RowForward::Softmax, at::kFloat, 4096), Choice::Aten},
      {"the same of half", forward(RowForward::Softmax, at::kHalf, 4096), Choice::Aten},
      {"a log_softmax", forward(RowForward::LogSoftmax, at::kFloat, 4096), Choice::Aten},
      {"the same of bfloat16", forward(RowForward::LogSoftmax, at::kBFloat16, 4096), Choice::Kernel},
      {"a logsumexp of rows of 255", forward(RowForward::LogSumExp, at::kFloat, 255), Choice::Aten},
      {"a logsumexp of rows of 256", forward(RowForward::LogSumExp, at::kFloat, 256), Choice::Kernel},
      {"a large sum that reads through zeros", {.reads_padded = true, .bytes = 64 * kMiB}, Choice::Aten},
  };
  for (const Case& row : cases) EXPECT_EQ(choice(cost_model().is_worth_it(row.op)), row.expected) << row.name;
}

TEST(CostModel, PaddingIsReadThroughWhereHalfIsTheTensor) {
  EXPECT_TRUE(cost_model().is_padding_read_through(50, 100));
  EXPECT_FALSE(cost_model().is_padding_read_through(49, 100));
  EXPECT_TRUE(cost_model().is_padding_read_through(100, 50));
}

TEST(CostModel, SmallKernelsAreBoundByTheirCall) {
  EXPECT_TRUE(cost_model().is_call_bound(4096));
  EXPECT_FALSE(cost_model().is_call_bound(4097));
}

TEST(CostModel, PiecesOfAConcat) {
  EXPECT_FALSE(cost_model().is_concat_written_in_place(15));
  EXPECT_TRUE(cost_model().is_concat_written_in_place(16));
}

TEST(CostModel, MemoryOfOperands) {
  EXPECT_FALSE(cost_model().is_memory_worth_taking((1 << 16) - 1));
  EXPECT_TRUE(cost_model().is_memory_worth_taking(1 << 16));
}

TEST(CostModel, FunctorsOfFarAngles) {
  EXPECT_TRUE(cost_model().are_far_angles_inlined(1));
  EXPECT_TRUE(cost_model().are_far_angles_inlined(2));
  EXPECT_FALSE(cost_model().are_far_angles_inlined(3));
}

TEST(CostModel, NontemporalStores) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_FALSE(codegen::cpu::are_nontemporal_stores_worth_it(32 * kMiB - 1));
  EXPECT_TRUE(codegen::cpu::are_nontemporal_stores_worth_it(32 * kMiB));
}

TEST(CostModel, WhatOneOpKeepsForAnother) {
  EXPECT_EQ(cost_model().reuse_limits().of_one, 1 << 20);
  EXPECT_EQ(cost_model().reuse_limits().of_all, 16 << 20);
}

TEST(CostModel, Limits) {
  const codegen::KernelLimits& limits = cost_model().limits();
  EXPECT_EQ(limits.members, 48U);
  EXPECT_EQ(limits.loads, 40U);
  EXPECT_EQ(limits.loads_of_large, 12U);
  EXPECT_EQ(limits.large_bytes, 1 << 20);
  EXPECT_EQ(limits.kept_bytes, 1 << 20);
  EXPECT_EQ(limits.waiting_bytes, 1 << 15);
}

}  // namespace
}  // namespace hindcast::tests
