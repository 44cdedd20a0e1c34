// The table of operators on a card: with both engines, and with kernels. HINDCAST_OPS_TABLE names the table, if it is not in the source
// folder. HINDCAST_OPS_LINES=first:last takes some of its lines.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/gpu/deterministic.h"
#include "tests/gpu/on_gpu.h"
#include "tests/support/crash_report.h"
#include "tests/support/log_capture.h"
#include "tests/support/same_grads.h"
#include "tests/whole/ops/op_run.h"
#include "tests/whole/ops/scenarios.h"
#include "tests/whole/ops/table.h"
#include "tests/whole/ops/tensors.h"

namespace hindcast::tests::ops {
namespace {

std::vector<Row> rows() {
  const char* const path = std::getenv("HINDCAST_OPS_TABLE");
  std::vector<Row> all = read_rows(path == nullptr ? table_path("ops.table") : path);
  if (const char* const lines = std::getenv("HINDCAST_OPS_LINES")) {
    int first = 0, last = 0;
    if (std::sscanf(lines, "%d:%d", &first, &last) != 2)
      throw std::invalid_argument("HINDCAST_OPS_LINES is '" + std::string(lines) + "'; expected first:last");
    std::erase_if(all, [&](const Row& row) { return row.line < first || row.line > last; });
  }
  // LibTorch reads the operands of these operators on the host, where a card's memory crashes the process.
  static const std::set<std::string> of_hosts = {"aten::_grid_sampler_2d_cpu_fallback", "aten::_nested_tensor_from_mask",
                                                 "aten::_nested_from_padded", "aten::_nested_view_from_buffer",
                                                 "aten::_nested_view_from_buffer_copy"};
  if (device_of_tests().is_cuda()) std::erase_if(all, [](const Row& row) { return of_hosts.contains(row.op); });
  return all;
}

/// New values and sizes. A NaN among the operands is a device error in some operators, which makes everything after it fail.
std::vector<Setting> runs_of(const Row& row, const std::string& dtype) {
  Setting setting;
  setting.dtype = dtype_of(dtype);
  std::vector<Setting> runs;
  const auto all = scenarios(row, shape_of(row, setting));
  for (Setting run : all.front().runs) {
    if (run.values != Values::Random) continue;
    run.dtype = setting.dtype;
    runs.push_back(run);
  }
  return runs;
}

class GpuOps : public OnTestedDevice {
 protected:
  void SetUp() override {
    OnTestedDevice::SetUp();
    if (IsSkipped()) return;
    report_crashes();
    at::set_num_threads(1);
    device_of_operands = device_of_tests();
  }
  void TearDown() override { device_of_operands = at::kCPU; }

  /// Calls back for each row, dtype and run that LibTorch has on a card.
  template <class Compare>
  void for_each_run(const std::vector<std::string>& dtypes, const Compare& compare) {
    for (const Row& row : rows()) {
      SCOPED_TRACE("line " + std::to_string(row.line) + ": " + row.text);
      hindcast::reset();
      for (const std::string& dtype : row.dtypes) {
        if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) continue;
        std::vector<Setting> runs;
        try {
          runs = runs_of(row, dtype);
        } catch (const std::exception& error) {
          without_.emplace(row.op, error.what());
          continue;
        }
        for (const Setting& run : runs) {
          const SeededProgram program = [&](uint64_t) { return run_row(row, run); };
          set_under_way("the stock engine, line " + std::to_string(row.line) + ": " + row.text + "; " + describe(run));
          const Outcome stock = run_stock(program, run.seed);
          if (!stock.error.empty() && !row.raises) {
            without_.emplace(row.op, stock.error);
            break;
          }
          SCOPED_TRACE(describe(run));
          set_under_way("hindcast, line " + std::to_string(row.line) + ": " + row.text + "; " + describe(run));
          compare(row, run, program, stock);
          ++runs_;
        }
      }
    }
    std::cout << "op table: " << runs_ << " runs; not on a card: " << without_.size() << " operators";
    for (const auto& [op, why] : without_) std::cout << "\n    " << op << ": " << why.substr(0, why.find('\n'));
    std::cout << std::endl;
    if (std::getenv("HINDCAST_OPS_LINES") == nullptr) {
      EXPECT_GT(runs_, 1000U);
    }
  }

  uint64_t runs_ = 0;
  std::map<std::string, std::string> without_;  // and why

 private:
  const SteadyLibraries steady_;
};

bool is_equal(const Outcome& a, const Outcome& b) {
  if (a.error != b.error || a.tensors.size() != b.tensors.size()) return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (!bit_equal(a.tensors[i], b.tensors[i])) return false;
  }
  return true;
}

// For an operator that adds in any order on a card, stock's own bits change: rarely, if few numbers are added. LibTorch tells which ones
// do, with some exceptions.
bool is_unsteady(const SeededProgram& program, const Outcome& stock, uint64_t seed) {
  constexpr int kTimes = 50;
  {
    const DeterministicOperators deterministic;
    run_stock(program, seed);
    if (deterministic.was_warned()) return true;
  }
  for (int again = 0; again < kTimes; ++again) {
    if (!is_equal(stock, run_stock(program, seed))) return true;
  }
  return false;
}

// Results that were added in another order.
bool is_near(const Outcome& stock, const Outcome& ours) {
  if (stock.error != ours.error || stock.tensors.size() != ours.tensors.size()) return false;
  for (size_t i = 0; i < stock.tensors.size(); ++i) {
    const at::Tensor &a = stock.tensors[i], &b = ours.tensors[i];
    if (a.defined() != b.defined()) return false;
    if (!a.defined() || bit_equal(a, b)) continue;
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || !a.is_floating_point()) return false;
    const at::Tensor wanted = a.to(at::kDouble).nan_to_num(), seen = b.to(at::kDouble).nan_to_num();
    const double most = a.element_size() == 2 ? 1e-2 : a.scalar_type() == at::kFloat ? 1e-5 : 1e-13;
    if ((wanted - seen).norm().item<double>() > most * wanted.norm().item<double>()) return false;
  }
  return true;
}

// Not if an index occurs twice and the order of writes decides.
bool is_near_itself(const SeededProgram& program, const Outcome& stock, uint64_t seed) {
  constexpr int kTimes = 20;
  for (int again = 0; again < kTimes; ++again) {
    if (!is_near(stock, run_stock(program, seed))) return false;
  }
  return true;
}

void tell(const std::set<std::string>& unsteady) {
  for (const std::string& op : unsteady) std::cout << "op table: stock's own bits change: " << op << std::endl;
}

/// A graph refused since a replay has other bits than the capture. A refused kernel is another matter.
bool is_of_a_graph(const LogCapture& warnings) {
  return warnings.count("is refused") == warnings.count("is not what the capture computed");
}

TEST_F(GpuOps, GiveTheStockGradients) {
  const DeterministicOperators deterministic;
  std::set<std::string> unsteady;
  for_each_run({"f32", "f64", "c64", "bf16"}, [&](const Row& row, const Setting& run, const SeededProgram& program, const Outcome& stock) {
    const Outcome ours = run_hindcast(program, run.seed);
    if (is_equal(stock, ours)) return;
    if (is_unsteady(program, stock, run.seed)) {
      if (is_near_itself(program, stock, run.seed)) {
        EXPECT_TRUE(is_near(stock, ours));
      }
      unsteady.insert(row.op);
      return;
    }
    expect_equal(stock, ours);
  });
  tell(unsteady);
}

TEST_F(GpuOps, NoKernelIsRefused) {
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  std::set<std::string> unsteady;
  Stats before;
  int line = 0;
  uint64_t fused = 0;
  for_each_run({"f32"}, [&](const Row& row, const Setting& run, const SeededProgram& program, const Outcome& stock) {
    const LogCapture warnings("");
    run_hindcast(program, run.seed, options);
    const Stats stats = hindcast::stats();
    if (row.line != line) before = {};  // each row starts anew
    line = row.line;
    fused += stats.fused_graphs - before.fused_graphs;
    const bool is_refused = stats.refused_graphs != before.refused_graphs;
    EXPECT_EQ(stats.compiler_failures, before.compiler_failures) << stats;
    before = stats;
    if (!is_refused) return;
    EXPECT_TRUE(is_of_a_graph(warnings) && is_unsteady(program, stock, run.seed)) << warnings.text();
    unsteady.insert(row.op);
  });
  tell(unsteady);
  std::cout << "op table: " << fused << " graphs with kernels" << std::endl;
  if (std::getenv("HINDCAST_OPS_LINES") == nullptr) {
    EXPECT_GT(fused, 100U);
  }
}

}  // namespace
}  // namespace hindcast::tests::ops
