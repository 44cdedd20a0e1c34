// The bodies from the table of operators, and some of many operands, as kernels for CUDA with all entry points. Their texts are written to
// the folder that HINDCAST_KEPT_TEXTS names. tests/machine_code has NVRTC's results for them.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/source.h"
#include "codegen/fuse/fuse.h"
#include "hindcast/hindcast.h"
#include "tests/support/costs_without_products.h"
#include "tests/support/kept_texts.h"
#include "tests/support/same_grads.h"
#include "tests/whole/ops/op_run.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"

namespace hindcast::tests::ops {
namespace {

/// Keeps the texts of all groups of the graphs from the table's rows. Returns their number.
size_t keep_texts_of_table() {
  std::set<std::string> texts;
  std::string node;
  std::set<at::ScalarType> types_of_leaves;
  Options options;
  options.compiler = Compiler([&](const std::shared_ptr<const Graph>& graph) {
    for (auto& group : codegen::fuse(*graph, kCostsWithoutProducts).groups) {
      codegen::BodyStore& store = group.body.stores[0];
      // Tensors here are small: one kernel of each dtype writes to leaves nevertheless.
      if (store.extent == codegen::Extent::Element && types_of_leaves.insert(store.type).second) store.leaves = 2;
      const std::string text = codegen::cuda::source_of(group.body);
      if (texts.insert(text).second) keep_text(text, node);
    }
    return std::vector<SegmentFunction>(graph->segments().size());
  });
  for (const Row& row : read_rows(table_path("ops.table"))) {
    if (row.node == "NnpackSpatialConvolutionBackward0") continue;  // does not take operands of every alignment
    reset();
    node = row.node;
    Setting setting;
    setting.dtype = dtype_of(row.dtypes.front());
    const Scenario scenario = scenarios(row, shape_of(row, setting)).front();
    for (const std::string& name : row.dtypes) {
      Setting run = scenario.runs.front();
      run.dtype = dtype_of(name);
      run_hindcast([&](uint64_t) { return run_row(row, run); }, run.seed, options);
    }
  }
  return texts.size();
}

using codegen::Operand;

/// Computes `results` of `loads` elements, each changed by the row's sum; for the first ones the column sums are results too.
codegen::Body row_of_many(size_t loads, size_t results, size_t columns, at::ScalarType type) {
  codegen::Body body;
  body.compute = type == at::kDouble ? at::kDouble : at::kFloat;
  body.by_rows = true;
  body.loads.assign(loads, {type});
  const auto load = [](size_t i) { return Operand{Operand::Kind::Load, static_cast<uint32_t>(i)}; };
  const auto last = [&] { return Operand{Operand::Kind::Result, static_cast<uint32_t>(body.ops.size() - 1)}; };
  body.ops.push_back({"mul", {load(0), load(0)}});
  for (size_t i = 1; i < loads; ++i) body.ops.push_back({"add", {last(), load(i)}});
  body.ops.push_back({{}, {last()}, codegen::BodyOp::Kind::Reduction, {codegen::Reduction::Kind::Sum, codegen::Reduction::Over::Row}});
  const Operand sum = last();
  body.ops.push_back({"mul", {sum, load(0)}});
  for (size_t i = 1; i < loads; ++i) body.ops.push_back({"mul", {last(), load(i)}});
  for (size_t i = 0; i < results; ++i) body.stores.push_back({{Operand::Kind::Result, last().index - static_cast<uint32_t>(i)}, type});
  for (size_t i = 0; i < columns; ++i) body.stores.push_back({load(i), type, codegen::Extent::Columns});
  return body;
}

void keep_row_of_many(size_t loads, size_t results, size_t columns, at::ScalarType type) {
  const std::string name = "row_of_" + std::to_string(loads) + "_loads_" + std::to_string(columns) + "_columns_" + c10::toString(type);
  keep_text(codegen::cuda::source_of(row_of_many(loads, results, columns, type)), name);
}

// Kernels of large tensors have 16 operands at most. Those of small ones may have 40 (codegen/cuda/cost_model.cpp), and some of these
// spill: for small tensors the launch dominates.
TEST(BodyTexts, OfManyOperandsAreWritten) {
  for (const size_t loads : {11, 12, 16, 28}) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kDouble}) {
      for (const size_t columns : {0, 3}) keep_row_of_many(loads, 1, columns, type);
    }
  }
  for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
    for (const size_t loads : {6, 8}) keep_row_of_many(loads, loads, 0, type);
  }
}

TEST(BodyTexts, OfTheTableAreWritten) { EXPECT_GT(keep_texts_of_table(), 100U); }

}  // namespace
}  // namespace hindcast::tests::ops
