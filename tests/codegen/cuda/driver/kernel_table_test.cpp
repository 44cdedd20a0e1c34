// What NVRTC compiles the kernels of some network patterns to: 16-byte accesses, and all values in registers.

#include "tests/codegen/cuda/driver/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "codegen/cuda/nvrtc.h"
#include "codegen/kernel/device_library.h"

namespace hindcast::tests {
namespace {

bool is_one_of(const std::string& kernel, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), kernel) != names.end();
}

class KernelTable : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    nvrtc = codegen::cuda::Nvrtc::get(&why_not);
    if (nvrtc != nullptr && !disassembler(&why_not).empty()) rows = rows_of(*nvrtc);
  }
  void SetUp() override {
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    ASSERT_FALSE(rows.empty()) << "no kernel was made";
  }

  inline static const codegen::cuda::Nvrtc* nvrtc = nullptr;
  inline static std::string why_not;
  inline static std::vector<TableRow> rows;
};

TEST_F(KernelTable, KernelsThatAreMadeForItMove16BytesAtATime) {
  size_t checked = 0;
  for (const TableRow& row : rows) {
    if (!is_one_of(row.kernel, {"dense", "dense_few", "nest", "rows", "rows_shared", "rows_long", "segments", "segments_shared", "sets"}))
      continue;
    for (const auto& [architecture, made] : row.by_architecture) {
      ++checked;
      EXPECT_GT(made.accesses.loads, 0) << row.pattern << " " << row.kernel << " sm_" << architecture;
      EXPECT_GT(made.accesses.stores, 0) << row.pattern << " " << row.kernel << " sm_" << architecture;
    }
  }
  EXPECT_GT(checked, 20U);
}

// A stack is card memory: a spill, or an array that is not in registers since its index is unknown. With unaligned tensors, ptxas may store
// some addresses to fit more threads.
TEST_F(KernelTable, KernelsKeepAllInRegisters) {
  for (const TableRow& row : rows) {
    const int most = row.kernel.ends_with("_each") ? 64 : 0;
    for (const auto& [architecture, made] : row.by_architecture) {
      EXPECT_LE(made.use.spilled_bytes, most) << row.pattern << " " << row.kernel << " sm_" << architecture;
      EXPECT_LE(made.use.stack_bytes, most) << row.pattern << " " << row.kernel << " sm_" << architecture;
    }
  }
}

TEST_F(KernelTable, DISABLED_PrintsTheTable) {
  std::printf("By %s, for sm_80 / sm_90 / sm_100 where they differ:\n\n%s", nvrtc->identity().c_str(), markdown_of(rows).c_str());
}

// For docs/gpu.md: NVRTC's time for the object that a kernel starts with, and for all of its objects. Not checked:
// --gtest_also_run_disabled_tests prints the times.
TEST_F(KernelTable, DISABLED_TimesOfNvrtc) {
  constexpr size_t kTimes = 9;
  const auto median_ms = [](const std::vector<std::string>& texts) {
    std::vector<double> ms;
    for (size_t i = 0; i < kTimes; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (const std::string& text : texts) nvrtc->compile(text, codegen::device_library(), codegen::cuda::kernel_options(90));
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(ms.begin(), ms.begin() + kTimes / 2, ms.end());
    return ms[kTimes / 2];
  };
  for (const auto& [pattern, whole, texts] : kernels_of_patterns())
    std::printf("| `%s` | %.0f ms | %.0f ms |\n", pattern.c_str(), median_ms({texts.front()}), median_ms(texts));
}

}  // namespace
}  // namespace hindcast::tests
