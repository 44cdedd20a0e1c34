// The table of ATen operators: capture/ops/aten_ops.def.

#include "capture/ops/op_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hindcast::tests {
namespace {

using capture::facts_of;
using capture::facts_of_functional;
using capture::OpFacts;
using capture::OpKind;
using capture::ViewKind;

TEST(OpFacts, RowsAreOperatorsOfLibTorchEachOnce) {
  std::set<std::string> names;
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNames()) {
    names.insert(op.name);
    names.insert(c10::toString(op));
  }
  std::set<std::string_view> rows;
  for (const OpFacts& row : capture::known_ops()) {
    EXPECT_TRUE(names.contains("aten::" + std::string(row.name))) << row.name;
    EXPECT_TRUE(rows.insert(row.name).second) << "two rows for " << row.name;
  }
  EXPECT_GT(rows.size(), 100U);
}

TEST(OpFacts, ARowWithAnOverloadIsForThatOne) {
  EXPECT_EQ(facts_of({"aten::view", ""}).view, ViewKind::Reshape);
  EXPECT_EQ(facts_of({"aten::view", "dtype"}).view, ViewKind::Other);
  EXPECT_FALSE(facts_of({"aten::view", "dtype"}).has(OpFacts::Linear));
  EXPECT_EQ(facts_of({"aten::squeeze", "dims"}).view, ViewKind::Reshape);
}

TEST(OpFacts, AnInPlaceOperatorHasTheRowOfItsFunctionalOneOnlyWhereItIsAskedFor) {
  EXPECT_TRUE(facts_of_functional({"aten::add_", "Tensor"}).has(OpFacts::Arithmetic));
  EXPECT_FALSE(facts_of({"aten::add_", "Tensor"}).has(OpFacts::Arithmetic));
  EXPECT_EQ(facts_of_functional({"aten::zero_", ""}).kind, OpKind::Copy);
}

TEST(OpFacts, OperatorsOfOthersHaveNoRow) {
  EXPECT_EQ(facts_of({"mine::view", ""}).view, ViewKind::Other);
  EXPECT_EQ(facts_of_functional({"mine::sum", ""}).kind, OpKind::Other);
  EXPECT_TRUE(facts_of({"mine::view", ""}).name.empty());
}

}  // namespace
}  // namespace hindcast::tests
