#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/support/same_grads.h"
#include "tests/whole/ops/expr.h"
#include "tests/whole/ops/tensors.h"

/// Tests the test: a comparison that lets differences pass would make every row green.
namespace hindcast::tests::ops {
namespace {

TEST(BitEqual, SeesTheSignOfZeroAndTheLastBit) {
  EXPECT_FALSE(bit_equal(at::tensor({0.0}), at::tensor({-0.0})));
  EXPECT_FALSE(bit_equal(at::tensor({1.0}), at::tensor({std::nextafter(1.0, 2.0)})));
  EXPECT_TRUE(bit_equal(at::tensor({0.5, 1.0}), at::tensor({0.5, 1.0})));
}

TEST(BitEqual, TakesEveryNaNForEqualAndNothingElseForNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(bit_equal(at::tensor({nan, 1.0}), at::tensor({-nan, 1.0})));
  EXPECT_FALSE(bit_equal(at::tensor({nan}), at::tensor({0.0})));
}

TEST(BitEqual, SeesDtypeSizesStridesAndDefinedness) {
  const at::Tensor a = at::ones({2, 3});
  EXPECT_FALSE(bit_equal(a, a.to(at::kDouble)));
  EXPECT_FALSE(bit_equal(a, at::ones({3, 2})));
  EXPECT_FALSE(bit_equal(a, at::ones({3, 2}).t()));
  EXPECT_FALSE(bit_equal(a, at::Tensor()));
  EXPECT_TRUE(bit_equal(at::Tensor(), at::Tensor()));
}

TEST(BitEqual, SeesTheConjBit) {
  const at::Tensor a = at::ones({2}, at::kComplexFloat);
  EXPECT_FALSE(bit_equal(a, a.conj()));
}

TEST(Outcome, HoldsTheErrorWithoutItsBacktrace) {
  const SeededProgram program = [](uint64_t) -> std::vector<at::Tensor> { TORCH_CHECK(false, "no"); };
  EXPECT_EQ(run_stock(program, 1).error, "no");
  EXPECT_EQ(run_hindcast(program, 1).error, "no");
}

TEST(TensorMaker, MakesTheSameValuesInEveryLayout) {
  const auto values = [](Operands operands) {
    Setting setting;
    setting.operands = operands;
    TensorMaker maker(setting);
    return maker.leaf(maker.normal({3, 4}, at::kFloat)).detach();
  };
  const at::Tensor plain = values(Operands::Contiguous);
  for (const Operands layout : {Operands::Transposed, Operands::Sliced, Operands::Negated, Operands::TransposeOfLeaf}) {
    EXPECT_TRUE(values(layout).equal(plain)) << static_cast<int>(layout);
  }
  EXPECT_EQ(values(Operands::Transposed).strides(), at::IntArrayRef({1, 3}));
  EXPECT_EQ(values(Operands::Sliced).strides(), at::IntArrayRef({8, 1}));
  EXPECT_EQ(values(Operands::Expanded).strides(), at::IntArrayRef({0, 1}));
  EXPECT_TRUE(values(Operands::Negated).is_neg());
}

TEST(Expr, ReadsCallsListsKeywordsAndArithmetic) {
  const std::vector<Expr> arguments = parse_arguments(R"(aten::sort(f(2*N+1, 4))#1, [1, -2], keepdim=true, "mean", -inf, 1e-5)");
  ASSERT_EQ(arguments.size(), 6U);
  EXPECT_EQ(arguments[0].word, "aten::sort");
  EXPECT_EQ(arguments[0].output, 1);
  EXPECT_EQ(arguments[1].items[1].integer, -2);
  EXPECT_EQ(arguments[2].keyword, "keepdim");
  EXPECT_EQ(arguments[3].word, "mean");
  EXPECT_EQ(arguments[4].real, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(arguments[5].real, 1e-5);
  EXPECT_TRUE(mentions(arguments, "N"));
}

TEST(Expr, SaysWhereItCouldNotRead) {
  try {
    parse_arguments("f(3, ]");
    FAIL() << "nothing was thrown";
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("at ']' expected an argument"));
  }
}

}  // namespace
}  // namespace hindcast::tests::ops
