// Every row of the table of operators with fused kernels: each is compared with ATen and with float64 before it serves, and
// none may be found wrong.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/ops/op_run.h"
#include "codegen/kernel/kernel_object.h"
#include "tests/ops/scenarios.h"
#include "tests/ops/table.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests::ops {
namespace {

TEST(FusedOps, NoKernelIsRefused) {
#ifndef HINDCAST_HAS_CLANG
  GTEST_SKIP() << "built without Clang";
#endif
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  uint64_t fused = 0;
  for (const Row& row : read_rows(table_path("ops.table"))) {
    if (row.node == "NnpackSpatialConvolutionBackward0") continue;  // does not take operands of every alignment
    SCOPED_TRACE(table_path("ops.table") + ":" + std::to_string(row.line) + ": " + row.text);
    reset();
    Setting setting;
    setting.dtype = dtype_of(row.dtypes.front());
    const Scenario scenario = scenarios(row, shape_of(row, setting)).front();  // values and sizes
    for (const std::string& name : row.dtypes) {
      const at::ScalarType dtype = dtype_of(name);
      if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16) continue;
      for (Setting run : scenario.runs) {
        run.dtype = dtype;
        run_hindcast([&](uint64_t) { return run_row(row, run); }, run.seed, options);
        ASSERT_EQ(stats().refused_graphs, 0U) << describe(run);
        ASSERT_EQ(stats().compiler_failures, 0U) << describe(run);
      }
    }
    fused += stats().fused_graphs;
  }
  at::set_num_threads(threads);
  EXPECT_GT(fused, 200U) << codegen::kernel_counts().compiled;
}

}  // namespace
}  // namespace hindcast::tests::ops
