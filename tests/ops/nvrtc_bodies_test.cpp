// The bodies that the table of operators gives rise to, as NVRTC reads them: kernels for CUDA will differ in their loops only.

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/source.h"
#include "codegen/fuse/fuse.h"
#include "codegen/kernel/device_library.h"
#include "engine/hindcast.h"
#include "tests/ops/op_run.h"
#include "tests/ops/scenarios.h"
#include "tests/ops/table.h"
#include "tests/support/machine_code.h"
#include "tests/support/same_grads.h"

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
      texts.insert(codegen::cpu::source_of(group.body));
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

std::string without(std::string text, const std::string& part, const std::string& instead) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.replace(at, part.size(), instead);
  return text;
}

TEST(NvrtcBodies, AllCompile) {
  HC_GET_NVRTC(nvrtc);
  const std::set<std::string> texts = texts_of_table();
  EXPECT_GT(texts.size(), 100U);
  const std::string head = "#include \"codegen/device/ops.h\"\nusing namespace hindcast::device;\n\n";
  // Each for one architecture in turn: the functors are compiled for all of them elsewhere (tests/device), the loops are alike.
  std::array<std::string, 3> programs = {head, head, head};
  size_t number = 0;
  for (const std::string& text : texts) {
    ASSERT_EQ(text.substr(0, head.size()), head);
    // Functions of the device, so that each is compiled though nobody calls it.
    const std::string body =
        without(without(text.substr(head.size()), "extern \"C\" void ", "__device__ void "), "#pragma clang", "// clang:");
    programs.at(number % 3) += "namespace kernel" + std::to_string(number) + " {\n" + body + "}\n";
    ++number;
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    std::vector<std::string> options = codegen::cuda::kernel_options(kArchitectures.at(i));
    options.emplace_back("--relocatable-device-code=true");
    EXPECT_GT(nvrtc->compile(programs.at(i), codegen::device_library(), options).object.size(), 0U);
  }
}

}  // namespace
}  // namespace hindcast::tests::ops
