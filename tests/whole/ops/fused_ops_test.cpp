// Every row of the table of operators with fused kernels, under the scenarios of op_table_test.cpp: each kernel is compared with ATen and
// with float64 before it is used, and none may be refused.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "codegen/kernel/kernel_object.h"
#include "tests/support/part.h"
#include "tests/support/same_grads.h"
#include "tests/whole/ops/op_run.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"

namespace hindcast::tests::ops {
namespace {

class FusedOps : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef HINDCAST_HAS_CLANG
    GTEST_SKIP() << "built without Clang";
#endif
    at::set_num_threads(1);
    options_.compiler = compilers::fused();
    options_.async = false;
    options_.verify = true;
  }
  void TearDown() override { at::set_num_threads(threads_); }

  void expect_none_is_refused(const Row& row, const Setting& run) {
    run_hindcast([&](uint64_t) { return run_row(row, run); }, run.seed, options_);
    ASSERT_EQ(stats().refused_graphs, 0U) << describe(run);
    ASSERT_EQ(stats().compiler_failures, 0U) << describe(run);
  }

 private:
  Options options_;
  const int threads_ = at::get_num_threads();
};

std::vector<Row> rows_of_table() {
  std::vector<Row> rows = read_rows(table_path("ops.table"));
  std::erase_if(rows,
                [](const Row& row) { return row.node == "NnpackSpatialConvolutionBackward0"; });  // refuses operands of some alignments
  return rows;
}

std::vector<Scenario> scenarios_of(const Row& row) {
  Setting setting;
  setting.dtype = dtype_of(row.dtypes.front());
  return scenarios(row, shape_of(row, setting));
}

/// Kernels support float16 where they support bfloat16.
std::vector<at::ScalarType> dtypes_of(const Row& row) {
  std::vector<at::ScalarType> dtypes;
  for (const std::string& name : row.dtypes) {
    const at::ScalarType dtype = dtype_of(name);
    if (c10::isComplexType(dtype)) continue;
    dtypes.push_back(dtype);
    if (dtype == at::kBFloat16) dtypes.push_back(at::kHalf);
  }
  return dtypes;
}

TEST_F(FusedOps, NoKernelIsRefused) {
  uint64_t fused = 0;
  const std::vector<Row> rows = rows_of_table();
  const Part part = part_of_run();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!part.has(i)) continue;
    const Row& row = rows[i];
    SCOPED_TRACE(table_path("ops.table") + ":" + std::to_string(row.line) + ": " + row.text);
    reset();
    const Scenario scenario = scenarios_of(row).front();  // values and sizes
    for (const at::ScalarType dtype : dtypes_of(row)) {
      for (Setting run : scenario.runs) {
        run.dtype = dtype;
        expect_none_is_refused(row, run);
      }
    }
    fused += stats().fused_graphs;
  }
  EXPECT_GT(fused, 200U / part.count) << codegen::kernel_counts().compiled;
}

// Other layouts, in one cache entry; views of leaves; hooks; some of the outputs and gradients.
TEST_F(FusedOps, NoKernelOfAnotherScenarioIsRefused) {
  uint64_t fused = 0;
  const std::vector<Row> rows = rows_of_table();
  const Part part = part_of_run();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!part.has(i)) continue;
    const Row& row = rows[i];
    SCOPED_TRACE(table_path("ops.table") + ":" + std::to_string(row.line) + ": " + row.text);
    reset();
    const std::vector<Scenario> all = scenarios_of(row);
    for (auto scenario = all.begin() + 1; scenario != all.end(); ++scenario) {
      SCOPED_TRACE(scenario->name);
      for (const Setting& run : scenario->runs) expect_none_is_refused(row, run);
    }
    fused += stats().fused_graphs;
  }
  EXPECT_GT(fused, 800U / part.count);
}

}  // namespace
}  // namespace hindcast::tests::ops
