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
    {"engine/base", {}},
    {"cache", {"engine/base"}},
    {"hooks", {"engine/base"}},
    {"capture", {"hooks", "cache", "engine/base"}},
    {"codegen/clang", {"engine/base"}},
    {"codegen/store", {"engine/base"}},
    {"codegen/device", {}},
    {"codegen/memory", {"engine/base"}},
    {"codegen/fuse", {"capture", "engine/base"}},
    {"codegen/passes", {"codegen/fuse", "capture", "engine/base"}},
    {"codegen", {"codegen/fuse", "capture", "cache", "engine/base"}},
    {"codegen/cpu", {"codegen", "codegen/fuse", "codegen/clang", "codegen/store", "codegen/memory", "capture", "engine/base"}},
    {"engine",
     {"codegen", "codegen/passes", "codegen/fuse", "codegen/cpu", "codegen/memory", "codegen/store", "capture", "hooks", "cache",
      "engine/base"}},
    {"python/csrc", {"engine", "capture", "engine/base"}},
};

/// The one header outside of engine/base that everybody may include: the macro that exports a public name.
constexpr std::string_view kExportMacro = "engine/api.h";

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
  for (const char* top : {"engine", "codegen"}) {
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
      if (include.path == kExportMacro) continue;
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
  for (const char* folder : {"cache", "codegen/clang", "codegen/store", "engine/base"}) {
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
      EXPECT_TRUE(folder == "capture" && include.file.extension() == ".cpp") << describe(include);
    }
  }
}

TEST(Layering, SpdlogStaysBehindTheLogChannels) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '<')) {
      if (include.path.rfind("spdlog/", 0) == 0) EXPECT_EQ(include.file, "engine/base/log.cpp") << describe(include);
    }
  }
}

TEST(Layering, ClangAndLLVMStayInThePlugin) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '<')) {
      if (include.path.rfind("clang/", 0) != 0 && include.path.rfind("llvm/", 0) != 0) continue;
      EXPECT_EQ(include.file.string().rfind("codegen/clang/plugin", 0), 0) << describe(include);
    }
  }
}

// Those of codegen, and the reproducers, ask for places on the disk, which no guard chooses.
TEST(Layering, TheEnvironmentIsReadByFiveFiles) {
  constexpr std::array<std::string_view, 5> kReaders = {"codegen/clang/compiler.cpp", "codegen/store/store_folder.cpp",
                                                        "engine/log_setup.cpp", "engine/options.cpp", "engine/reproducer.cpp"};
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
