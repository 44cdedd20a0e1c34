#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/support/part.h"
#include "tests/support/same_grads.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"

/// The rows of `ops.table` under Options::verify: every graph, replayed on copies, gives the bits that its capture computed.
namespace hindcast::tests::ops {
namespace {

class VerifiedOps : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }

  const int threads_ = at::get_num_threads();
};

/// Stops at the row's first graph that is refused.
void run_verified(const Row& row) {
  Setting setting;
  setting.dtype = dtype_of(row.dtypes.front());
  Options options;
  options.verify = true;
  for (const Scenario& scenario : scenarios(row, shape_of(row, setting))) {
    for (const Setting& run : scenario.runs) {
      const uint64_t before = stats().refused_graphs;
      run_hindcast([&](uint64_t) { return run_row(row, run); }, run.seed, options);
      ASSERT_EQ(stats().refused_graphs, before) << scenario.name << ": " << describe(run);
    }
  }
}

TEST_F(VerifiedOps, NoGraphIsRefused) {
  uint64_t graphs = 0;
  const std::vector<Row> rows = read_rows(table_path("ops.table"));
  const Part part = part_of_run();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!part.has(i)) continue;
    const Row& row = rows[i];
    SCOPED_TRACE(table_path("ops.table") + ":" + std::to_string(row.line) + ": " + row.text);
    reset();
    try {
      run_verified(row);
    } catch (const c10::Error& error) {  // only the forward: NNPACK refuses operands of some alignments
      EXPECT_EQ(row.node, "NnpackSpatialConvolutionBackward0") << error.what_without_backtrace();
    }
    graphs += stats().unique_graphs;
  }
  EXPECT_GT(graphs, 1000U / part.count);
}

}  // namespace
}  // namespace hindcast::tests::ops
