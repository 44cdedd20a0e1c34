// Which facts become symbols: rows of numbers and the choice, without a backward.

#include "engine/cache/dynamic_rule.h"

#include "capture/backward/trace.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <vector>

namespace hindcast::tests {
namespace {

using capture::FactKind;
using capture::Facts;
using Kinds = std::vector<FactKind>;

constexpr int32_t kNone = capture::kStaticFact;
constexpr FactKind kMeta = FactKind::TensorMeta, kSize = FactKind::TensorSize, kInput = FactKind::InputSize, kSaved = FactKind::SavedSize,
                   kFloat = FactKind::FloatScalar, kExact = FactKind::ExactScalar;

int64_t bits(double value) { return std::bit_cast<int64_t>(value); }

engine::DynamicRow choose(const Kinds& kinds, const std::vector<Facts>& earlier, const Facts& now, const std::set<int64_t>& pinned = {}) {
  return engine::choose_dynamic({now, earlier, kinds, pinned});
}

TEST(DynamicRule, WhatDidNotChangeStaysStatic) {
  const auto row = choose({kMeta, kSize, kFloat}, {{7, 4, bits(0.5)}}, {7, 4, bits(0.5)});
  EXPECT_TRUE(row.symbols.empty());
  EXPECT_FALSE(row.is_dynamic(1));
}

TEST(DynamicRule, SizesThatWereAlwaysEqualShareASymbol) {
  const auto row = choose({kSize, kSize, kInput}, {{4, 4, 4}}, {5, 5, 6});
  EXPECT_EQ(row.symbols, (std::vector<int32_t>{0, 0, 1}));
  EXPECT_EQ(row.int_hints, (std::vector<int64_t>{5, 6}));
}

TEST(DynamicRule, EqualSizesThatDifferedInACaptureAreTwoSymbols) {
  const auto row = choose({kSize, kSize}, {{4, 4}, {4, 3}}, {5, 5});
  EXPECT_EQ(row.symbols, (std::vector<int32_t>{0, 1}));
}

TEST(DynamicRule, WithTheFirstSizeAllThatAreNotPinnedBecomeDynamic) {
  const Kinds kinds = {kSize, kSize, kSize};
  EXPECT_EQ(choose(kinds, {{4, 10, 16}}, {5, 10, 16}, {16}).symbols, (std::vector<int32_t>{0, 1, kNone}));
  EXPECT_EQ(choose(kinds, {{4, 10, 16}}, {4, 10, 17}, {16}).symbols, (std::vector<int32_t>{0, 1, 2}));
}

TEST(DynamicRule, APinnedSizeThatChangedIsDynamic) {
  EXPECT_EQ(choose({kSize, kSize}, {{4, 16}}, {4, 17}, {4, 17}).symbols, (std::vector<int32_t>{kNone, 0}));
}

TEST(DynamicRule, SizesOfZeroAndOneServeOnlyThemselves) {
  EXPECT_TRUE(choose({kSize}, {{4}}, {1}).symbols.empty());
  EXPECT_TRUE(choose({kSize}, {{4}}, {0}).symbols.empty());
  EXPECT_EQ(choose({kSize, kSize}, {{4, 6}}, {1, 7}).symbols, (std::vector<int32_t>{kNone, 0}));
}

TEST(DynamicRule, AFieldThatWentTheWayOfASizeOfOneStaysWithIt) {
  EXPECT_EQ(choose({kSize, kSaved, kSaved}, {{4, 4, 9}}, {1, 1, 1}).symbols, (std::vector<int32_t>{kNone, kNone, 0}));
}

TEST(DynamicRule, AFieldThatEqualsNoSizeJoinsNone) {
  EXPECT_EQ(choose({kSize, kSaved, kSaved}, {{4, 10, 10}}, {5, 10, 10}).symbols, (std::vector<int32_t>{0, kNone, kNone}));
  EXPECT_EQ(choose({kSize, kSize, kSaved}, {{4, 10, 10}}, {5, 10, 10}).symbols, (std::vector<int32_t>{0, 1, 1}));
}

TEST(DynamicRule, AFieldIsNoSizeUntilATensorHasItsSymbol) {
  const auto row = choose({kSaved, kSize, kSaved}, {{4, 6, 6}}, {5, 7, 7});
  EXPECT_EQ(row.symbols, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(row.is_size, (std::vector<bool>{false, true}));
}

TEST(DynamicRule, EachScalarIsASymbolOfItsOwnAndMakesNoSizeDynamic) {
  const auto row = choose({kFloat, kFloat, kSize}, {{bits(1.0), bits(1.0), 8}}, {bits(2.0), bits(2.0), 8});
  EXPECT_EQ(row.symbols, (std::vector<int32_t>{0, 1, kNone}));
  EXPECT_EQ(row.is_float, (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_EQ(row.float_hints, (std::vector<double>{2.0, 2.0}));
  EXPECT_TRUE(row.int_hints.empty());
}

TEST(DynamicRule, RowsThatDifferElsewhereAreNotCompatible) {
  const Kinds kinds = {kMeta, kSize, kExact};
  EXPECT_TRUE(engine::is_compatible({1, 4, 2}, {1, 5, 2}, kinds));
  EXPECT_FALSE(engine::is_compatible({1, 4, 2}, {2, 4, 2}, kinds));
  EXPECT_FALSE(engine::is_compatible({1, 4, 2}, {1, 4, 3}, kinds));
  EXPECT_FALSE(engine::is_compatible({1, 4}, {1, 4, 2}, kinds));
}

}  // namespace
}  // namespace hindcast::tests
