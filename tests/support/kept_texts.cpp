#include "tests/support/kept_texts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace hindcast::tests {
namespace {

std::string name_of_running_test() {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? "no_test" : std::string(test->test_suite_name()) + "." + test->name();
}

}  // namespace

void keep_text(std::string_view text, std::string name) {
  static const char* const folder = std::getenv("HINDCAST_KEPT_TEXTS");
  if (folder == nullptr) return;
  static std::mutex mutex;  // kernels are compiled on several threads
  static std::unordered_set<size_t> kept;
  static std::map<std::string, int> count_of_name;
  const std::lock_guard lock(mutex);
  if (!kept.insert(std::hash<std::string_view>()(text)).second) return;
  std::replace(name.begin(), name.end(), '/', '-');
  std::filesystem::create_directories(folder);
  name += "-" + std::to_string(++count_of_name[name]) + ".cu";
  std::ofstream(std::filesystem::path(folder) / name) << text;
}

void keep_text(std::string_view text) { keep_text(text, name_of_running_test()); }

}  // namespace hindcast::tests
