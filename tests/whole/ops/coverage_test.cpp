#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

#include <iostream>
#include <map>
#include <set>
#include <vector>

#include "tests/whole/ops/node_classes.h"
#include "tests/whole/ops/table.h"

/// No node class of LibTorch is forgotten: each has a row, or a reason why it has none.
namespace hindcast::tests::ops {
namespace {

std::set<std::string> classes_with_rows() {
  std::set<std::string> names;
  for (const Row& row : read_rows(table_path("ops.table"))) names.insert(row.node);
  return names;
}

std::set<std::string> classes_with_opaque_rows() {
  std::set<std::string> names;
  for (const Row& row : read_rows(table_path("ops.table")))
    if (row.opaque) names.insert(row.node);
  return names;
}

std::map<std::string, std::string> excuses(const std::string& table) {
  std::map<std::string, std::string> reasons;
  for (const Excuse& excuse : read_excuses(table_path(table)))
    EXPECT_TRUE(reasons.emplace(excuse.node, excuse.reason).second) << table << ": " << excuse.node << " stands there twice";
  return reasons;
}

class NodeClasses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TORCH_VERSION_MINOR != 11) GTEST_SKIP() << "the tables are of LibTorch 2.11's classes";
  }
};

TEST_F(NodeClasses, EachHasARowOrAReasonWhyNot) {
  const std::set<std::string> covered = classes_with_rows();
  const std::map<std::string, std::string> not_covered = excuses("not_covered.table");
  std::vector<std::string> in_neither;
  std::vector<std::string> in_both;
  for (const std::string& name : all_node_classes()) {
    const bool row = covered.count(name) != 0;
    const bool excuse = not_covered.count(name) != 0;
    if (!row && !excuse) in_neither.push_back(name);
    if (row && excuse) in_both.push_back(name);
  }
  EXPECT_THAT(in_neither, ::testing::IsEmpty()) << "give each a row in ops.table, or a reason in not_covered.table";
  EXPECT_THAT(in_both, ::testing::IsEmpty()) << "these have rows: take them out of not_covered.table";
}

TEST_F(NodeClasses, TheTablesNameOnlyWhatLibTorchHas) {
  const std::set<std::string> all = all_node_classes();
  for (const std::string& name : classes_with_rows()) EXPECT_EQ(all.count(name), 1U) << "ops.table: " << name;
  for (const auto& [name, reason] : excuses("not_covered.table")) EXPECT_EQ(all.count(name), 1U) << "not_covered.table: " << name;
}

TEST_F(NodeClasses, OpaqueOnesHaveAReason) {
  const std::set<std::string> opaque = classes_with_opaque_rows();
  const std::map<std::string, std::string> reasons = excuses("opaque.table");
  for (const std::string& name : opaque)
    EXPECT_EQ(reasons.count(name), 1U) << name << ": has a row marked `opaque`, and no reason in opaque.table";
  for (const auto& [name, reason] : reasons) EXPECT_EQ(opaque.count(name), 1U) << name << ": in opaque.table, and no row marked `opaque`";
}

}  // namespace
}  // namespace hindcast::tests::ops
