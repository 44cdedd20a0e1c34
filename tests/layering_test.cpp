// The rules of docs/design.md about folders: they form layers, a file includes its own folder and those below it, and a folder says which
// namespace its files open.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
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
    {"codegen/layouts", {"codegen/fuse", "codegen/store", "capture/function", "capture/graph", "base"}},
    {"codegen/plan", {"codegen/fuse", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"codegen/kernel", {"codegen/plan", "codegen/fuse", "codegen/store", "capture/graph", "capture/symbols", "base"}},
    {"codegen", {"codegen/cpu", "codegen/cuda", "codegen/kernel"}},
    {"codegen/cpu/clang", {"base"}},
    {"codegen/cpu/memory", {"base"}},
    {"codegen/cpu",
     {"codegen/cpu/clang", "codegen/cpu/memory", "codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/device", "codegen/store",
      "capture/graph", "capture/symbols", "base"}},
    {"codegen/cuda/graphs", {}},
    {"codegen/cuda",
     {"codegen/cuda/graphs", "codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/device", "capture/graph", "capture/symbols",
      "base"}},
    {"engine/counters", {"base"}},
    {"engine/diagnosis/trace",
     {"codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/store", "capture/graph", "capture/symbols", "base"}},
    {"engine/diagnosis",
     {"engine/diagnosis/trace", "engine/counters", "codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/store", "capture/backward",
      "capture/graph", "capture/symbols", "cache", "base"}},
    {"engine",
     {"engine/diagnosis", "engine/diagnosis/trace", "engine/counters", "codegen/kernel", "codegen/plan", "codegen/passes", "codegen/fuse",
      "codegen/store", "capture/backward", "capture/recorder", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"engine/aot",
     {"engine", "engine/diagnosis", "engine/diagnosis/trace", "engine/counters", "codegen/kernel", "codegen/layouts", "codegen/partition",
      "codegen/plan", "capture/function", "capture/backward", "capture/recorder", "capture/graph", "capture/symbols", "hooks", "cache",
      "base"}},
    {"engine/second_order", {"engine/aot", "engine", "engine/counters", "capture/backward", "capture/recorder", "cache", "base"}},
    {"engine/saved", {"engine/aot", "engine", "capture/function", "capture/recorder", "hooks", "base"}},
    {"engine/optim", {"engine", "capture/backward", "codegen/kernel", "codegen/fuse", "hooks", "base"}},
    {"engine/train",
     {"engine/aot", "engine/optim", "engine", "engine/counters", "codegen/kernel", "capture/recorder", "capture/graph", "base"}},
    {"engine/torchscript", {"engine/aot", "base"}},
    {"c_api", {"engine", "engine/aot", "engine/optim", "engine/counters", "base"}},
    {"preload", {"c_api"}},
    {"python/csrc",
     {"engine", "engine/aot", "engine/optim", "engine/train", "engine/diagnosis", "engine/counters", "capture/function", "capture/backward",
      "capture/recorder", "capture/graph", "capture/symbols", "base"}},
};

/// Which namespaces the files of a folder open: first its own, whose nested ones are its too, then those with names that users write.
const std::map<std::string, std::vector<std::string>> kNamespaces = {
    {"base", {"hindcast::base", "hindcast"}},
    {"cache", {"hindcast::cache"}},
    {"hooks", {"hindcast::hooks", "hindcast"}},
    {"capture/symbols", {"hindcast::capture"}},
    {"capture/graph", {"hindcast::capture", "hindcast"}},
    {"capture/shape_rules", {"hindcast::capture"}},
    {"capture/recorder", {"hindcast::capture"}},
    {"capture/backward", {"hindcast::capture"}},
    {"capture/function", {"hindcast::capture"}},
    {"codegen/device", {"hindcast::device"}},  // a library that kernels' text includes
    {"codegen/store", {"hindcast::codegen::store"}},
    {"codegen/fuse", {"hindcast::codegen"}},
    {"codegen/passes", {"hindcast::codegen"}},
    {"codegen/layouts", {"hindcast::codegen"}},
    {"codegen/partition", {"hindcast::codegen"}},
    {"codegen/plan", {"hindcast::codegen"}},
    {"codegen/kernel", {"hindcast::codegen"}},
    {"codegen", {"hindcast::codegen"}},
    // Functions that LLVM asks for.
    {"codegen/cpu/clang", {"hindcast::codegen::cpu", "llvm", "llvm::compression", "llvm::compression::zlib", "llvm::compression::zstd"}},
    {"codegen/cpu/memory", {"hindcast::codegen::cpu"}},
    {"codegen/cpu", {"hindcast::codegen::cpu"}},
    {"codegen/cuda/graphs", {"hindcast::codegen::cuda"}},
    {"codegen/cuda", {"hindcast::codegen::cuda"}},
    {"engine/counters", {"hindcast::engine", "hindcast"}},
    {"engine/diagnosis/trace", {"hindcast::engine"}},
    {"engine/diagnosis", {"hindcast::engine", "hindcast"}},
    {"engine", {"hindcast::engine", "hindcast", "hindcast::compilers"}},
    {"engine/optim", {"hindcast::engine", "hindcast"}},
    {"engine/train", {"hindcast::engine", "hindcast"}},
    {"engine/aot", {"hindcast::engine", "hindcast", "hindcast::partition", "hindcast::tree"}},
    {"engine/second_order", {"hindcast::engine"}},
    {"engine/saved", {"hindcast::engine", "hindcast"}},
    {"engine/torchscript", {"hindcast::engine", "hindcast"}},
    {"c_api", {"hindcast::c_api"}},
    {"preload", {"hindcast::preload"}},
    {"python/csrc", {"hindcast::python"}},
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

std::string folder_of(const Include& include) { return fs::path(include.path).parent_path(); }

/// By folder: which others its files include, and where first.
using Rooms = std::map<std::string, std::map<std::string, Include>>;

/// Includes that lead from one room to another, by way of others. None: no way leads there.
std::vector<Include> way_back(const Rooms& rooms, const std::string& from, const std::string& to, std::set<std::string>& seen) {
  if (!seen.insert(from).second || !rooms.contains(from)) return {};
  for (const auto& [next, include] : rooms.at(from)) {
    if (next == to) return {include};
    std::vector<Include> way = way_back(rooms, next, to, seen);
    if (way.empty()) continue;
    way.insert(way.begin(), include);
    return way;
  }
  return {};
}

/// A namespace that a file opens and puts names into.
struct Opened {
  int line;
  std::string name;
};

bool is_forward_declaration(const std::string& line) {
  static const std::regex kOne("(template <.*>|(enum )?(class|struct) [A-Za-z_]+( : [a-z0-9_]+)?;|)");
  return std::regex_match(line, kOne);
}

/// The formatter puts each namespace on a line, at its beginning, and a comment behind the end of all but the shortest. One that has only
/// other namespaces or forward declarations counts for nothing.
std::vector<Opened> namespaces_of(const fs::path& file) {
  static const std::regex kOpen("namespace(?: ([a-z_:]+))? \\{");
  struct Open {
    int line;
    std::string name;
    bool has_names = false;
  };
  std::vector<Open> open;
  std::vector<Opened> all;
  std::ifstream in(file);
  std::string text;
  std::smatch match;
  for (int number = 1; std::getline(in, text); ++number) {
    if (text.rfind("namespace", 0) == 0 && std::regex_match(text, match, kOpen)) {
      const std::string outer = open.empty() ? "" : open.back().name, own = match[1];
      open.push_back({number, outer + (outer.empty() || own.empty() ? "" : "::") + own});
    } else if (!open.empty() && (text.rfind("}  // namespace", 0) == 0 || (text == "}" && !open.back().has_names))) {
      if (open.back().has_names && !open.back().name.empty()) all.push_back({open.back().line, open.back().name});
      open.pop_back();
    } else if (!open.empty() && !open.back().has_names && text.rfind("//", 0) != 0 && !is_forward_declaration(text)) {
      open.back().has_names = true;
    }
  }
  for (const Open& left : open) all.push_back({left.line, left.name + ", which has no end"});
  return all;
}

bool is_one_of(const std::string& name, const std::vector<std::string>& allowed) {
  return name == allowed.front() || name.rfind(allowed.front() + "::", 0) == 0 ||
         std::find(allowed.begin(), allowed.end(), name) != allowed.end();
}

TEST(Layering, EveryFolderOfTheLibraryHasARule) {
  for (const char* top : {"engine", "codegen", "capture"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (entry.is_directory()) {
        EXPECT_TRUE(kMayInclude.contains(fs::relative(entry.path(), kRoot))) << entry.path();
      }
    }
  }
  for (const auto& [folder, below] : kMayInclude) {
    EXPECT_FALSE(sources_of(folder).empty()) << folder;
    EXPECT_TRUE(kNamespaces.contains(folder)) << folder;
  }
}

TEST(Layering, FilesIncludeTheirOwnFolderAndThoseBelow) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '"')) {
      const std::string target = folder_of(include);
      EXPECT_TRUE(target == folder || std::find(below.begin(), below.end(), target) != below.end())
          << describe(include) << ": " << folder << " lies below it";
    }
  }
}

TEST(Layering, RoomsIncludeEachOtherInNoCircle) {
  Rooms rooms;
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder, '"')) {
      if (folder_of(include) != folder) rooms[folder].emplace(folder_of(include), include);
    }
  }
  EXPECT_GT(rooms.size(), 20U);
  for (const auto& [room, others] : rooms) {
    for (const auto& [other, include] : others) {
      std::set<std::string> seen;
      std::string circle;
      for (const Include& back : way_back(rooms, other, room, seen)) circle += ", " + describe(back);
      EXPECT_EQ(circle, "") << describe(include) << circle;
    }
  }
}

TEST(Layering, FilesOpenTheNamespaceOfTheirFolder) {
  size_t count = 0;
  for (const auto& [folder, allowed] : kNamespaces) {
    for (const fs::path& file : sources_of(folder)) {
      for (const Opened& opened : namespaces_of(file)) {
        ++count;
        EXPECT_TRUE(is_one_of(opened.name, allowed))
            << fs::relative(file, kRoot).string() << ":" << opened.line << " opens " << opened.name << ", and not " << allowed.front();
      }
    }
  }
  EXPECT_GT(count, 300U);
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
TEST(Layering, TheEnvironmentIsReadByEightFiles) {
  constexpr std::array<std::string_view, 8> kReaders = {"codegen/cpu/clang/compiler.cpp",
                                                        "codegen/cuda/nvrtc.cpp",
                                                        "codegen/store/store_folder.cpp",
                                                        "engine/diagnosis/log_setup.cpp",
                                                        "engine/diagnosis/reproducer.cpp",
                                                        "engine/diagnosis/trace/trace_setup.cpp",
                                                        "engine/options.cpp",
                                                        "preload/auto.cpp"};
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
