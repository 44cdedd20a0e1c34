#include "codegen/store/store_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace hindcast::codegen::store {
namespace {

/// Sets the three variables as given and unsets the others; restores them at the end.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values) {
    for (const char* name : {"HINDCAST_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) {
      const char* const former = std::getenv(name);
      former_[name] = former == nullptr ? std::nullopt : std::optional<std::string>(former);
      const auto given = values.find(name);
      set(name, given == values.end() ? std::nullopt : std::optional(given->second));
    }
  }
  ~Environment() {
    for (const auto& [name, value] : former_) set(name, value);
  }

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      setenv(name.c_str(), value->c_str(), 1);
    else
      unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> former_;
};

std::string folder_with(const std::map<std::string, std::string>& values) {
  const Environment environment(values);
  return default_store_folder();
}

TEST(StoreFolder, TheMostSpecificVariableDecides) {
  EXPECT_EQ(folder_with({{"HINDCAST_CACHE_DIR", "/mine"}, {"XDG_CACHE_HOME", "/caches"}, {"HOME", "/home/me"}}), "/mine");
  EXPECT_EQ(folder_with({{"XDG_CACHE_HOME", "/caches"}, {"HOME", "/home/me"}}), "/caches/hindcast");
  EXPECT_EQ(folder_with({{"HOME", "/home/me"}}), "/home/me/.cache/hindcast");
}

TEST(StoreFolder, NothingOrZeroTurnsTheStoreOff) {
  EXPECT_EQ(folder_with({{"HINDCAST_CACHE_DIR", ""}, {"HOME", "/home/me"}}), "");
  EXPECT_EQ(folder_with({{"HINDCAST_CACHE_DIR", "0"}, {"HOME", "/home/me"}}), "");
}

TEST(StoreFolder, WithoutAHomeThereIsNone) {
  EXPECT_EQ(folder_with({}), "");
  EXPECT_EQ(folder_with({{"HOME", ""}}), "");
  EXPECT_EQ(folder_with({{"XDG_CACHE_HOME", "relative"}, {"HOME", ""}}), "");
}

TEST(StoreFolder, ARelativePathIsFixedNow) {
  EXPECT_EQ(folder_with({{"HINDCAST_CACHE_DIR", "kernels"}}), std::filesystem::current_path() / "kernels");
}

}  // namespace
}  // namespace hindcast::codegen::store
