// The bodies that the table of operators gives rise to, as kernels for CUDA, which NVRTC compiles: each for one architecture in turn, or, with
// HINDCAST_ALL_ARCHITECTURES=1, which takes three times as long, for all of them.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "codegen/cpu/cost_model.h"
#include "codegen/cuda/source.h"
#include "codegen/fuse/fuse.h"
#include "engine/hindcast.h"
#include "tests/ops/op_run.h"
#include "tests/ops/scenarios.h"
#include "tests/ops/table.h"
#include "tests/support/machine_code.h"
#include "tests/support/same_grads.h"
#include "tests/support/spills.h"

namespace hindcast::tests::ops {
namespace {

/// The texts of all groups of the graphs that the table's rows give, each once.
std::set<std::string> texts_of_table() {
  std::set<std::string> texts;
  std::set<at::ScalarType> types_of_leaves;
  Options options;
  options.compiler = Compiler([&](const std::shared_ptr<const Graph>& graph) {
    for (auto& group : codegen::fuse(*graph, codegen::cpu::cost_model()).groups) {
      codegen::BodyStore& store = group.body.stores[0];
      // Tensors here are small: one kernel of each type writes to leaves all the same.
      if (store.extent == codegen::Extent::Element && types_of_leaves.insert(store.type).second) store.leaves = 2;
      texts.insert(codegen::cuda::source_of(group.body));
    }
    return std::vector<SegmentFunction>(graph->segments().size());
  });
  for (const Row& row : read_rows(table_path("ops.table"))) {
    if (row.node == "NnpackSpatialConvolutionBackward0") continue;  // does not take operands of every alignment
    reset();
    Setting setting;
    setting.dtype = dtype_of(row.dtypes.front());
    const Scenario scenario = scenarios(row, shape_of(row, setting)).front();
    for (const std::string& name : row.dtypes) {
      Setting run = scenario.runs.front();
      run.dtype = dtype_of(name);
      run_hindcast([&](uint64_t) { return run_row(row, run); }, run.seed, options);
    }
  }
  return texts;
}

TEST(NvrtcBodies, AllCompileAndStayInRegisters) {
  HC_GET_NVRTC(nvrtc);
  const std::set<std::string> all = texts_of_table();
  EXPECT_GT(all.size(), 100U);
  const std::vector<std::string> texts(all.begin(), all.end());
  expect_no_spills(*nvrtc, texts);
}

}  // namespace
}  // namespace hindcast::tests::ops
