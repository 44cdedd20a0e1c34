// The bodies that the table of operators gives rise to, as kernels for CUDA, which NVRTC compiles: each for one architecture in turn, or, with
// HINDCAST_ALL_ARCHITECTURES=1, which takes three times as long, for all of them.

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <set>
#include <string>
#include <vector>

#include "codegen/cpu/cost_model.h"
#include "codegen/cuda/source.h"
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

/// Bytes that functions of CUDA's own save where they are called, as a division does on its slow path. Other spills are ours.
constexpr int kSavedAroundCalls = 64;

struct Spill {
  int architecture = 0;
  std::string kernel;
  KernelUse use;
  std::string text;
};

/// Of texts `first`, `first` + `step` and so on.
std::vector<Spill> spills_of(const codegen::cuda::Nvrtc& nvrtc, const std::vector<std::string>& texts, size_t first, size_t step) {
  static const bool takes_all = std::getenv("HINDCAST_ALL_ARCHITECTURES") != nullptr;
  std::vector<Spill> spills;
  const size_t count = texts.size() * (takes_all ? kArchitectures.size() : 1);
  for (size_t n = first; n < count; n += step) {
    const size_t i = n % texts.size();
    const int architecture = kArchitectures.at((i / step + n / texts.size()) % kArchitectures.size());
    const auto code = nvrtc.compile(texts[i], codegen::device_library(), codegen::cuda::kernel_options(architecture));
    for (const auto& [kernel, use] : uses_in(code.log)) {
      if (use.spilled_bytes > kSavedAroundCalls) spills.push_back({architecture, kernel, use, texts[i]});
    }
  }
  return spills;
}

TEST(NvrtcBodies, AllCompileAndStayInRegisters) {
  HC_GET_NVRTC(nvrtc);
  const std::set<std::string> all = texts_of_table();
  EXPECT_GT(all.size(), 100U);
  const std::vector<std::string> texts(all.begin(), all.end());
  auto half = std::async(std::launch::async, [&] { return spills_of(*nvrtc, texts, 1, 2); });
  std::vector<Spill> spills = spills_of(*nvrtc, texts, 0, 2);
  for (Spill& spill : half.get()) spills.push_back(std::move(spill));
  for (const Spill& spill : spills) {
    ADD_FAILURE() << spill.kernel << " for sm_" << spill.architecture << " has " << spill.use.registers << " registers, spills "
                  << spill.use.spilled_bytes << " bytes and has a stack of " << spill.use.stack_bytes << "\n"
                  << spill.text;
  }
}

}  // namespace
}  // namespace hindcast::tests::ops
