// The kernels of the suites that run through the emulator, by NVRTC. The suites leave their texts in the folder that HINDCAST_KEPT_TEXTS
// names. Of those a fixed part is compiled, each for one architecture; with HINDCAST_ALL_TEXTS=1 all of them, which takes a quarter of an hour;
// with HINDCAST_ALL_ARCHITECTURES=1 all of them for each architecture.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/cuda/nvrtc.h"
#include "tests/support/spills.h"

namespace hindcast::tests {
namespace {

std::vector<std::filesystem::path> paths_in(const char* folder) {
  std::vector<std::filesystem::path> paths;
  if (!std::filesystem::exists(folder)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(TextsOfSuites, CompileAndStayInRegisters) {
  const char* const folder = std::getenv("HINDCAST_KEPT_TEXTS");
  if (folder == nullptr) GTEST_SKIP() << "HINDCAST_KEPT_TEXTS names no folder: ctest has the entry cuda.machine_code";
  std::string why_not;
  const auto* const nvrtc = codegen::cuda::Nvrtc::get(&why_not);
  if (nvrtc == nullptr) GTEST_SKIP() << why_not;
  const std::vector<std::filesystem::path> paths = paths_in(folder);
  ASSERT_FALSE(paths.empty()) << folder << " is empty: the suites through the emulator come first (ctest --preset release -L cuda)";
  constexpr size_t kPart = 8;
  const bool takes_all = std::getenv("HINDCAST_ALL_TEXTS") != nullptr || std::getenv("HINDCAST_ALL_ARCHITECTURES") != nullptr;
  const size_t step = takes_all ? 1 : kPart;
  std::vector<std::string> texts;
  for (size_t i = 0; i < paths.size(); i += step) {
    std::ifstream in(paths[i]);
    texts.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  std::printf("%zu of %zu texts\n", texts.size(), paths.size());
  expect_no_spills(*nvrtc, texts);
}

}  // namespace
}  // namespace hindcast::tests
