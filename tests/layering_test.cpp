// The include rule of docs/design.md: folders form layers, and a file includes its own folder and those below it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = HINDCAST_SOURCE_DIR;

/// Which folders the files of a folder may include, besides their own.
const std::map<std::string, std::vector<std::string>> kMayInclude = {
    {"base", {}},
    {"cache", {"base"}},
    {"hooks", {"base"}},
    {"capture/symbols", {"base"}},
    {"capture/graph", {"capture/symbols", "hooks", "base"}},
    {"capture/shape_rules", {"capture/symbols", "base"}},
    {"capture/recorder", {"capture/graph", "capture/shape_rules", "capture/symbols", "base"}},
    {"capture/backward", {"capture/recorder", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"capture/function", {"capture/backward", "capture/recorder", "capture/graph", "capture/symbols", "base"}},
    {"codegen/device", {}},
    {"codegen/store", {"base"}},
    {"codegen/fuse", {"codegen/device", "capture/graph", "capture/symbols", "base"}},
    {"codegen/passes", {"codegen/fuse", "capture/graph", "capture/symbols", "base"}},
    {"codegen/partition", {"codegen/passes", "codegen/fuse", "capture/function", "capture/graph", "base"}},
    {"codegen/plan", {"codegen/fuse", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"codegen/kernel", {"codegen/plan", "codegen/fuse", "codegen/store", "capture/graph", "capture/symbols", "base"}},
    {"codegen", {"codegen/cpu", "codegen/kernel"}},
    {"codegen/cpu/clang", {"base"}},
    {"codegen/cpu/memory", {"base"}},
    {"codegen/cpu",
     {"codegen/cpu/clang", "codegen/cpu/memory", "codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/store", "capture/graph",
      "capture/symbols", "base"}},
    {"engine/diagnosis",
     {"engine", "codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/store", "capture/backward", "capture/graph", "capture/symbols",
      "cache", "base"}},
    {"engine",
     {"engine/diagnosis", "codegen/kernel", "codegen/plan", "codegen/passes", "codegen/fuse", "codegen/store", "capture/backward",
      "capture/recorder", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"engine/aot",
     {"engine", "engine/diagnosis", "codegen/kernel", "codegen/partition", "codegen/plan", "capture/function", "capture/backward",
      "capture/recorder", "capture/graph", "capture/symbols", "cache", "base"}},
    {"python/csrc", {"engine", "engine/aot", "engine/diagnosis", "capture/recorder", "capture/graph", "capture/symbols", "base"}},
};

struct Include {
  fs::path file;  // from the root
  int line;
  std::string path;
};

std::vector<fs::path> sources_of(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".h" || extension == ".cpp") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Includes that start with `open`, a quote or an angle bracket.
std::vector<Include> includes_of(const std::string& folder, char open) {
  std::vector<Include> includes;
  const std::string start = std::string("#include ") + open;
  for (const fs::path& file : sources_of(folder)) {
    std::ifstream in(file);
    std::string text;
    for (int line = 1; std::getline(in, text); ++line) {
      if (text.rfind(start, 0) != 0) continue;
      const size_t end = text.find(open == '<' ? '>' : '"', start.size());
      includes.push_back({fs::relative(file, kRoot), line, text.substr(start.size(), end - start.size())});
    }
  }
  return includes;
}

std::string describe(const Include& include) {
  return include.file.string() + ":" + std::to_string(include.line) + " includes " + include.path;
}

TEST(Layering, EveryFolderOfTheLibraryHasARule) {
  for (const char* top : {"engine", "codegen", "capture"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (entry.is_directory()) {
        EXPECT_TRUE(kMayInclude.contains(fs::relative(entry.path(), kRoot))) << entry.path();
      }
    }
  }
  for (const auto& [folder, below] : kMayInclude) EXPECT_FALSE(sources_of(folder).empty()) << folder;
}

TEST(Layering, FilesIncludeTheirOwnFolderAndThoseBelow) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '"')) {
      const std::string target = fs::path(include.path).parent_path();
      EXPECT_TRUE(target == folder || std::find(below.begin(), below.end(), target) != below.end())
          << describe(include) << ": " << folder << " lies below it";
    }
  }
}

TEST(Layering, QuotedIncludesAreFilesSeenFromTheRoot) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '"')) {
      EXPECT_TRUE(fs::exists(kRoot / include.path)) << describe(include) << ", which is no path from the root";
    }
  }
}

TEST(Layering, FoldersOfBytesDoWithoutLibTorch) {
  for (const char* folder : {"cache", "codegen/cpu/clang", "codegen/store", "base"}) {
    for (const Include& include : includes_of(folder, '<')) {
      for (const char* libtorch : {"torch/", "ATen/", "c10/"}) {
        EXPECT_NE(include.path.rfind(libtorch, 0), 0U) << describe(include);
      }
    }
  }
}

TEST(Layering, LibTorchsLargeHeaderStaysInSourcesOfCapture) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '<')) {
      if (include.path != "torch/csrc/dynamo/compiled_autograd.h") continue;
      EXPECT_TRUE(folder.rfind("capture/", 0) == 0 && include.file.extension() == ".cpp") << describe(include);
    }
  }
}

TEST(Layering, SpdlogStaysBehindTheLogChannels) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '<')) {
      if (include.path.rfind("spdlog/", 0) == 0) EXPECT_EQ(include.file, "base/log.cpp") << describe(include);
    }
  }
}

TEST(Layering, ClangAndLLVMStayInThePlugin) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '<')) {
      if (include.path.rfind("clang/", 0) != 0 && include.path.rfind("llvm/", 0) != 0) continue;
      EXPECT_EQ(include.file.string().rfind("codegen/cpu/clang/plugin", 0), 0) << describe(include);
    }
  }
}

// Those of codegen, and the reproducers, ask for places on the disk, which no guard chooses.
TEST(Layering, TheEnvironmentIsReadByFiveFiles) {
  constexpr std::array<std::string_view, 5> kReaders = {"codegen/cpu/clang/compiler.cpp", "codegen/store/store_folder.cpp",
                                                        "engine/diagnosis/log_setup.cpp", "engine/options.cpp",
                                                        "engine/diagnosis/reproducer.cpp"};
  for (const auto& [folder, below] : kMayInclude) {
    for (const fs::path& file : sources_of(folder)) {
      std::ifstream in(file);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      const std::string name = fs::relative(file, kRoot);
      const bool reader = std::find(kReaders.begin(), kReaders.end(), name) != kReaders.end();
      EXPECT_TRUE(reader || text.find("getenv(") == std::string::npos) << name;
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
