#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "tests/support/same_grads.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"

/// Every row of `ops.table`, run by both engines under every scenario.
namespace hindcast::tests::ops {

/// Prints a failing row for GoogleTest, which looks for this name in the type's namespace.
void PrintTo(const Row& row, std::ostream* out) { *out << row.text; }

namespace {

class OpTable : public ::testing::TestWithParam<Row> {
 protected:
  // The operands are tiny: more threads only wait for each other, and order some sums differently.
  static void SetUpTestSuite() {
    threads_ = at::get_num_threads();
    at::set_num_threads(1);
  }

  void SetUp() override { reset(); }

  static void TearDownTestSuite() {
    std::cout << "op table: " << runs_ << " runs on each engine; " << pinned_.size() << " rows compiled again for a third size";
    for (const std::string& row : pinned_) std::cout << "\n    " << row;
    std::cout << std::endl;
    at::set_num_threads(threads_);
  }

  void compare(const Row& row, const Scenario& scenario) {
    for (size_t i = 0; i < scenario.runs.size(); ++i) {
      const Setting& setting = scenario.runs[i];
      SCOPED_TRACE(scenario.name + ", run " + std::to_string(i + 1) + ": " + describe(setting));
      const SeededProgram program = [&](uint64_t) { return run_row(row, setting); };
      const Outcome stock = run_stock(program, setting.seed);
      const Stats before = stats();
      const Outcome ours = run_hindcast(program, setting.seed);
      ++runs_;
      if (!expect_equal(stock, ours)) return;
      // A node whose formula raises runs as itself; that says something about the row only if it always raises.
      if (stock.error.empty() || row.raises) opaque_ |= times_opaque(row, stats()) > times_opaque(row, before);
      if (&scenario == first_ && setting.values == Values::Random) check_run_of_first_scenario(row, i, setting, stock, before);
    }
  }

  void run_all(const Row& row) {
    Setting setting;
    setting.dtype = dtype_of(row.dtypes.front());
    const RowShape shape = shape_of(row, setting);
    ASSERT_GT(shape.outputs, 0U) << "the op has no output that requires grad";
    EXPECT_NE(std::find(shape.nodes.begin(), shape.nodes.end(), row.node), shape.nodes.end())
        << "the row should produce " << row.node << ", it produces " << ::testing::PrintToString(shape.nodes);
    const std::vector<Scenario> all = scenarios(row, shape);
    first_ = &all.front();
    for (const Scenario& scenario : all) {
      compare(row, scenario);
      if (HasFailure()) return;
    }
    EXPECT_EQ(opaque_, row.opaque)
        << row.node
        << (opaque_ ? " ran as an opaque step: trace it, or mark the row `opaque` and give the reason in opaque.table"
                    : " was traced: take the mark `opaque` off the row, and its class out of opaque.table");
  }

 private:
  static uint64_t times_opaque(const Row& row, const Stats& stats) {
    const auto found = stats.opaque_nodes.find(row.node);
    return found == stats.opaque_nodes.end() ? 0 : found->second;
  }

  /// The plain runs must do what the row says: work, unless it `raises`, and hit.
  static void check_run_of_first_scenario(const Row& row, size_t run, const Setting& setting, const Outcome& stock, const Stats& before) {
    if (run == 0) {
      EXPECT_EQ(row.raises, !stock.error.empty()) << "stock raised '" << stock.error << "'";
    }
    const Stats after = stats();
    if (run == 1 && !row.raises && !row.uneven) {
      EXPECT_EQ(row.stock, after.backwards == before.backwards) << "left to the stock engine: " << after;
      EXPECT_EQ(row.stock, after.hits == before.hits) << "the second run with the same sizes was not a hit: " << after;
    }
    if (setting.n == 7 && !row.raises && !row.uneven && after.misses != before.misses) pinned_.insert(row.text);
  }

  static inline int threads_ = 1;
  static inline uint64_t runs_ = 0;
  static inline std::set<std::string> pinned_;
  const Scenario* first_ = nullptr;
  bool opaque_ = false;
};

TEST_P(OpTable, GivesTheStockGradients) {
  const Row& row = GetParam();
  SCOPED_TRACE(table_path("ops.table") + ":" + std::to_string(row.line) + ": " + row.text);
  run_all(row);
}

std::string test_name(const ::testing::TestParamInfo<Row>& info) {
  std::string name = info.param.node + "_line" + std::to_string(info.param.line);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Rows, OpTable, ::testing::ValuesIn(read_rows(table_path("ops.table"))), test_name);

}  // namespace
}  // namespace hindcast::tests::ops
