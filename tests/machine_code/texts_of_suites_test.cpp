// The kernels of the suites, compiled by NVRTC. The suites write their texts to the folder that HINDCAST_KEPT_TEXTS names, each into its
// own folder. The table has NVRTC's results for most of them. HINDCAST_TEST_PART selects those that are recompiled; with
// HINDCAST_ALL_ARCHITECTURES=1 each is compiled for all architectures.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/machine_code/check_texts.h"
#include "tests/machine_code/make_table.h"

namespace hindcast::tests {
namespace {

class TextsOfSuites : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("HINDCAST_KEPT_TEXTS");
    if (folder == nullptr) GTEST_SKIP() << "HINDCAST_KEPT_TEXTS names no folder: ctest has the entry cuda.machine_code";
    std::string why_not;
    nvrtc = codegen::cuda::Nvrtc::get(&why_not);
    if (nvrtc == nullptr) GTEST_SKIP() << why_not;
    texts = texts_in(folder);
    ASSERT_FALSE(texts.empty()) << folder << " is empty: the suites through the emulator come first (ctest --preset release -L cuda)";
    path_of_earlier = std::string(folder) + ".known";
    earlier = read_known_uses(path_of_earlier);
  }

  const codegen::cuda::Nvrtc* nvrtc = nullptr;
  Texts texts;
  std::string path_of_earlier;
  KnownUses earlier;
};

TEST_F(TextsOfSuites, CompileAndStayInRegisters) {
  const Table table = read_table(table_folder());
  if (table.compiler != nvrtc->identity())
    std::printf("The table of kernels is of %s, and this is %s: it has none of them.\n", table.compiler.c_str(), nvrtc->identity().c_str());
  const bool all_architectures = std::getenv("HINDCAST_ALL_ARCHITECTURES") != nullptr;
  const AllowedSpills allowed = read_allowed_spills(table_folder() + "/allowed_spills.table");
  const Check check = check_texts(*nvrtc, texts, table, earlier, {part_of_run(), all_architectures, allowed});
  write_known_uses(path_of_earlier, earlier);
  std::printf("%zu texts of kernels: %zu known, %zu of the table compiled again, %zu new ones compiled, %zu left out%s\n", texts.size(),
              check.known, check.compiled_again, check.compiled, check.left_out,
              check.left_out > 0 ? " (make kernel-table adds those of its suites)" : "");
  for (const std::string& problem : check.problems) ADD_FAILURE() << problem;
}

// Run by `make kernel-table`. What is compiled is kept if the run is interrupted.
TEST_F(TextsOfSuites, DISABLED_WriteTheTable) {
  for (const auto& [label, row] : read_table(table_folder()).rows) earlier.emplace(row.hash, row.uses);
  size_t compiled = 0;
  const Table table = make_table(*nvrtc, texts, earlier, [&](size_t count, size_t of) {
    compiled = count;
    write_known_uses(path_of_earlier, earlier);
    std::printf("%zu of %zu new texts compiled\n", count, of);
    std::fflush(stdout);
  });
  write_table(table_folder(), table);
  std::printf("%zu texts of kernels: %zu were known, %zu compiled\n", texts.size(), texts.size() - compiled, compiled);
}

}  // namespace
}  // namespace hindcast::tests
