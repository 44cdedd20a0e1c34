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
const fs::path kPublic = kRoot / "include" / "hindcast";

/// Which folders the files of a folder may include, besides their own.
const std::map<std::string, std::vector<std::string>> kMayInclude = {
    {"base", {}},
    {"cache", {"base"}},
    {"hooks", {"base"}},
    {"capture/ops", {"base"}},
    {"capture/symbols", {"base"}},
    {"capture/graph", {"capture/symbols", "hooks", "base"}},
    {"capture/shape_rules", {"capture/symbols", "base"}},
    {"capture/recorder", {"capture/graph", "capture/shape_rules", "capture/symbols", "base"}},
    {"capture/backward", {"capture/recorder", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"capture/function", {"capture/backward", "capture/recorder", "capture/graph", "capture/ops", "capture/symbols", "base"}},
    {"codegen/device", {}},
    {"codegen/device/skeletons/cpu", {"codegen/device/skeletons", "codegen/device"}},
    {"codegen/device/skeletons", {"codegen/device"}},
    {"codegen/store", {"base"}},
    {"codegen/fuse", {"codegen/device", "capture/graph", "capture/ops", "capture/symbols", "base"}},
    {"codegen/passes", {"codegen/fuse", "capture/graph", "capture/ops", "capture/symbols", "base"}},
    {"codegen/partition", {"codegen/passes", "codegen/fuse", "capture/function", "capture/graph", "capture/ops", "base"}},
    {"codegen/layouts", {"codegen/fuse", "codegen/store", "capture/function", "capture/graph", "capture/ops", "base"}},
    {"codegen/plan", {"codegen/fuse", "capture/graph", "capture/ops", "capture/symbols", "hooks", "cache", "base"}},
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
    {"engine/diagnosis/trace", {"codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/store", "capture/graph", "base"}},
    {"engine/diagnosis",
     {"engine/diagnosis/trace", "engine/counters", "codegen/kernel", "codegen/plan", "codegen/fuse", "codegen/store", "capture/backward",
      "capture/graph", "cache", "base"}},
    {"engine/options", {"capture/graph", "base"}},
    {"engine/plan", {"codegen/plan", "capture/backward", "base"}},
    {"engine/compile",
     {"engine/plan", "engine/options", "engine/diagnosis", "engine/diagnosis/trace", "engine/counters", "codegen/kernel", "codegen/plan",
      "codegen/passes", "codegen/fuse", "capture/graph", "base"}},
    {"engine/cuda_graphs",
     {"engine/plan", "engine/counters", "codegen/kernel", "codegen/plan", "capture/backward", "capture/graph", "capture/ops",
      "capture/symbols", "base"}},
    {"engine/cache",
     {"engine/cuda_graphs", "engine/compile", "engine/plan", "engine/options", "engine/diagnosis", "capture/backward", "capture/symbols",
      "cache", "base"}},
    {"engine/call",
     {"engine/cache", "engine/cuda_graphs", "engine/plan", "engine/options", "engine/diagnosis", "engine/counters", "codegen/plan",
      "capture/backward", "capture/graph", "capture/symbols", "hooks", "cache", "base"}},
    {"engine",
     {"engine/call", "engine/cache", "engine/cuda_graphs", "engine/compile", "engine/options", "engine/diagnosis", "engine/counters",
      "codegen/kernel", "capture/backward", "capture/recorder", "capture/graph", "hooks", "cache", "base"}},
    {"engine/aot",
     {"engine",
      "engine/cache",
      "engine/cuda_graphs",
      "engine/compile",
      "engine/plan",
      "engine/options",
      "engine/diagnosis",
      "engine/diagnosis/trace",
      "engine/counters",
      "codegen/kernel",
      "codegen/layouts",
      "codegen/partition",
      "codegen/plan",
      "capture/function",
      "capture/backward",
      "capture/recorder",
      "capture/graph",
      "capture/ops",
      "hooks",
      "cache",
      "base"}},
    {"engine/second_order",
     {"engine/aot", "engine", "engine/call", "engine/cache", "engine/plan", "engine/counters", "capture/backward", "capture/recorder",
      "cache", "base"}},
    {"engine/saved", {"engine/aot", "engine", "capture/function", "capture/recorder", "hooks", "base"}},
    {"engine/optim", {"engine", "engine/options", "codegen/kernel", "codegen/fuse", "capture/backward", "hooks", "base"}},
    {"engine/train",
     {"engine/optim", "engine/aot", "engine/cuda_graphs", "engine/counters", "codegen/kernel", "capture/recorder", "capture/graph",
      "base"}},
    {"engine/torchscript", {"engine/aot", "base"}},
    {"c_api", {"engine/optim", "engine/aot", "engine", "engine/options", "engine/counters", "base"}},
    {"preload", {"c_api"}},
    {"python/csrc",
     {"engine/train", "engine/optim", "engine/aot", "engine", "engine/cache", "engine/compile", "engine/options", "engine/diagnosis",
      "engine/counters", "capture/function", "capture/backward", "capture/recorder", "capture/graph", "capture/symbols", "base"}},
};

/// Public headers, below include/hindcast, by the folder that implements them.
const std::map<std::string, std::string> kPublicHeaders = {
    {"aot.h", "engine/aot"},
    {"aot_function.h", "engine/aot"},
    {"aot_graphs.h", "engine/aot"},
    {"aot_module.h", "engine/aot"},
    {"aot_options.h", "engine/aot"},
    {"api.h", "base"},
    {"checkpoint.h", "engine/saved"},
    {"compiled_step.h", "engine/optim"},
    {"detail/aot_core.h", "engine/aot"},
    {"detail/footprint.h", "base"},
    {"detail/back_off_policy.h", "engine/cache"},
    {"detail/script_values.h", "engine/torchscript"},
    {"detail/shared_list.h", "base"},
    {"detail/step_core.h", "engine/train"},
    {"detail/typed_call.h", "engine/aot"},
    {"grad_ready.h", "hooks"},
    {"graph.h", "capture/graph"},
    {"hindcast.h", "engine"},
    {"hindcast_c.h", "c_api"},
    {"jit.h", "engine/torchscript"},
    {"offload.h", "engine/saved"},
    {"optim.h", "engine/optim"},
    {"options.h", "engine/options"},
    {"stats.h", "engine/counters"},
    {"step_in_backward.h", "engine/optim"},
    {"symbols.h", "capture/symbols"},
    {"traceable.h", "hooks"},
    {"train_step.h", "engine/train"},
    {"train_step_options.h", "engine/train"},
    {"tree.h", "engine/aot"},
    {"version.h", "base"},
};

/// The namespaces that the files of a folder open: first its own, including nested ones, then those with names that users write, and
/// hindcast::detail, for templates in public headers.
const std::map<std::string, std::vector<std::string>> kNamespaces = {
    {"base", {"hindcast::base", "hindcast"}},
    {"cache", {"hindcast::cache"}},
    {"hooks", {"hindcast::hooks", "hindcast"}},
    {"capture/ops", {"hindcast::capture"}},
    {"capture/symbols", {"hindcast::capture"}},
    {"capture/graph", {"hindcast::capture", "hindcast"}},
    {"capture/shape_rules", {"hindcast::capture"}},
    {"capture/recorder", {"hindcast::capture"}},
    {"capture/backward", {"hindcast::capture"}},
    {"capture/function", {"hindcast::capture"}},
    {"codegen/device", {"hindcast::device"}},  // a library that kernels' text includes
    {"codegen/device/skeletons", {"hindcast::device"}},
    {"codegen/device/skeletons/cpu", {"hindcast::device::cpu"}},
    {"codegen/store", {"hindcast::codegen::store"}},
    {"codegen/fuse", {"hindcast::codegen"}},
    {"codegen/passes", {"hindcast::codegen"}},
    {"codegen/layouts", {"hindcast::codegen"}},
    {"codegen/partition", {"hindcast::codegen"}},
    {"codegen/plan", {"hindcast::codegen"}},
    {"codegen/kernel", {"hindcast::codegen"}},
    {"codegen", {"hindcast::codegen"}},
    // Functions that LLVM requires.
    {"codegen/cpu/clang", {"hindcast::codegen::cpu", "llvm", "llvm::compression", "llvm::compression::zlib", "llvm::compression::zstd"}},
    {"codegen/cpu/memory", {"hindcast::codegen::cpu"}},
    {"codegen/cpu", {"hindcast::codegen::cpu"}},
    {"codegen/cuda/graphs", {"hindcast::codegen::cuda"}},
    {"codegen/cuda", {"hindcast::codegen::cuda"}},
    {"engine/counters", {"hindcast::engine", "hindcast"}},
    {"engine/diagnosis/trace", {"hindcast::engine"}},
    {"engine/diagnosis", {"hindcast::engine", "hindcast"}},
    {"engine/options", {"hindcast::engine", "hindcast", "hindcast::compilers"}},
    {"engine/plan", {"hindcast::engine"}},
    {"engine/compile", {"hindcast::engine", "hindcast", "hindcast::compilers"}},
    {"engine/cuda_graphs", {"hindcast::engine"}},
    {"engine/cache", {"hindcast::engine", "hindcast::detail"}},
    {"engine/call", {"hindcast::engine"}},
    {"engine", {"hindcast::engine", "hindcast"}},
    {"engine/optim", {"hindcast::engine", "hindcast::detail", "hindcast"}},
    {"engine/train", {"hindcast::engine", "hindcast::detail", "hindcast"}},
    {"engine/aot", {"hindcast::engine", "hindcast::detail", "hindcast", "hindcast::partition", "hindcast::tree"}},
    {"engine/second_order", {"hindcast::engine"}},
    {"engine/saved", {"hindcast::engine", "hindcast::detail", "hindcast"}},
    {"engine/torchscript", {"hindcast::engine", "hindcast::detail", "hindcast"}},
    {"c_api", {"hindcast::c_api"}},
    {"preload", {"hindcast::preload"}},
    {"python/csrc", {"hindcast::python"}},
};

struct Include {
  fs::path file;  // relative to the root
  int line;
  std::string path;
  std::string room;  // empty: another library's
};

std::vector<fs::path> sources_of(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kRoot / folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".h" || extension == ".cpp") files.push_back(entry.path());
  }
  for (const auto& [header, room] : kPublicHeaders) {
    if (room == folder) files.push_back(kPublic / header);
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The room of one of our included files; empty: another library's.
std::string room_of(const std::string& included, bool is_quoted) {
  const std::string start = "hindcast/";
  if (included.rfind(start, 0) != 0) return is_quoted ? fs::path(included).parent_path().string() : std::string();
  const auto header = kPublicHeaders.find(included.substr(start.size()));
  return header == kPublicHeaders.end() ? "no public header" : header->second;
}

/// All `#include` lines of the folder's files.
std::vector<Include> includes_of(const std::string& folder) {
  static const std::regex kLine("#include ([<\"])([^>\"]+)[>\"].*");
  std::vector<Include> includes;
  for (const fs::path& file : sources_of(folder)) {
    std::ifstream in(file);
    std::string text;
    std::smatch match;
    for (int line = 1; std::getline(in, text); ++line) {
      if (!std::regex_match(text, match, kLine)) continue;
      includes.push_back({fs::relative(file, kRoot), line, match[2], room_of(match[2], match[1] == "\"")});
    }
  }
  return includes;
}

/// Those of our files.
std::vector<Include> own_includes_of(const std::string& folder) {
  std::vector<Include> includes = includes_of(folder);
  includes.erase(std::remove_if(includes.begin(), includes.end(), [](const Include& include) { return include.room.empty(); }),
                 includes.end());
  return includes;
}

std::string describe(const Include& include) {
  return include.file.string() + ":" + std::to_string(include.line) + " includes " + include.path;
}

/// Per folder: which others its files include, and where first.
using Rooms = std::map<std::string, std::map<std::string, Include>>;

/// Includes that lead from one room to another, via others. Empty: there is no such path.
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

/// The formatter puts each namespace at the beginning of a line, and a comment after the end of all but the shortest. A namespace with only
/// other namespaces or forward declarations does not count.
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
    for (const Include& include : own_includes_of(folder)) {
      const std::string& target = include.room;
      EXPECT_TRUE(target == folder || std::find(below.begin(), below.end(), target) != below.end())
          << describe(include) << ": " << folder << " lies below it";
    }
  }
}

TEST(Layering, RoomsIncludeEachOtherInNoCircle) {
  Rooms rooms;
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : own_includes_of(folder)) {
      if (include.room != folder) rooms[folder].emplace(include.room, include);
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

TEST(Layering, OwnIncludesAreFilesSeenFromTheRoot) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : own_includes_of(folder)) {
      EXPECT_TRUE(fs::exists(kRoot / include.path) || fs::exists(kRoot / "include" / include.path))
          << describe(include) << ", which is no path from the root, or from include/";
    }
  }
}

// This folder is what is installed: its headers include each other, LibTorch's and the standard library's.
TEST(Layering, PublicHeadersHaveARoomAndIncludeNoOthersOfOurs) {
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kPublic)) {
    if (!entry.is_regular_file()) continue;
    ++count;
    const std::string header = fs::relative(entry.path(), kPublic);
    EXPECT_TRUE(kPublicHeaders.contains(header)) << header;
    std::ifstream in(entry.path());
    std::string text;
    for (int line = 1; std::getline(in, text); ++line) EXPECT_NE(text.rfind("#include \"", 0), 0U) << header << ":" << line;
  }
  EXPECT_EQ(count, kPublicHeaders.size());
}

TEST(Layering, FoldersOfBytesDoWithoutLibTorch) {
  for (const char* folder : {"cache", "codegen/cpu/clang", "codegen/store", "base"}) {
    for (const Include& include : includes_of(folder)) {
      for (const char* libtorch : {"torch/", "ATen/", "c10/"}) {
        EXPECT_NE(include.path.rfind(libtorch, 0), 0U) << describe(include);
      }
    }
  }
}

TEST(Layering, LibTorchsLargeHeaderStaysInSourcesOfCapture) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder)) {
      if (include.path != "torch/csrc/dynamo/compiled_autograd.h") continue;
      EXPECT_TRUE(folder.rfind("capture/", 0) == 0 && include.file.extension() == ".cpp") << describe(include);
    }
  }
}

TEST(Layering, SpdlogStaysBehindTheLogChannels) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder)) {
      if (include.path.rfind("spdlog/", 0) != 0) continue;
      EXPECT_EQ(include.file, "base/log.cpp") << describe(include);
    }
  }
}

TEST(Layering, ClangAndLLVMStayInThePlugin) {
  for (const auto& [folder, below] : kMayInclude) {
    for (const Include& include : includes_of(folder)) {
      if (include.path.rfind("clang/", 0) != 0 && include.path.rfind("llvm/", 0) != 0) continue;
      EXPECT_EQ(include.file.string().rfind("codegen/cpu/clang/plugin", 0), 0) << describe(include);
    }
  }
}

// The formatter wraps code, but no comments.
TEST(Layering, CommentsWrapAt140Columns) {
  size_t files = 0;
  for (const char* top :
       {"base", "bench", "c_api", "cache", "capture", "codegen", "engine", "examples", "hooks", "include", "preload", "python", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp") continue;
      ++files;
      std::ifstream in(entry.path());
      std::string text;
      for (int line = 1; std::getline(in, text); ++line) {
        const size_t comment = text.find("// ");
        const bool is_comment = comment != text.npos && text.find_first_of("\"(", comment) == text.npos;
        if (text.size() > 140 && (is_comment || text.find_first_not_of(' ') == text.find("//")))
          ADD_FAILURE() << fs::relative(entry.path(), kRoot).string() << ":" << line << " has " << text.size() << " columns";
      }
    }
  }
  EXPECT_GT(files, 700U);
}

// If a process forks while another thread initialises a function's `static` object, the child waits for that thread for ever: MadeOnce.
// Two plug-ins do without it, since a fork waits for their callers, and the bindings' Python objects, since Python's lock is held.
TEST(Layering, ObjectsMadeOnFirstUseAreSafeAcrossForks) {
  static const std::regex kStatic(R"(\s+static (const )?(auto|[A-Za-z_:]+(<.*>)?)[&*]? (const )?\w+( = [^0;]*(new |\[|\(|").*|\(".*))");
  constexpr std::array<std::string_view, 4> kWithout = {"codegen/cpu/clang", "codegen/cuda/graphs", "base/fork.cpp",
                                                        "static Object* const"};
  constexpr std::string_view kTextOfReproducers = "same_every_time";
  for (const auto& [folder, below] : kMayInclude) {
    for (const fs::path& file : sources_of(folder)) {
      std::ifstream in(file);
      std::string text;
      for (int line = 1; std::getline(in, text); ++line) {
        const std::string where = fs::relative(file, kRoot).string() + ":" + std::to_string(line) + ":" + text;
        const bool may = std::ranges::any_of(kWithout, [&](std::string_view each) { return where.find(each) != where.npos; });
        if (std::regex_match(text, kStatic) && !may && text.find(kTextOfReproducers) == text.npos) ADD_FAILURE() << where;
      }
    }
  }
}

// Those of codegen, and the reproducers, look for places on the disk, which no guard chooses, and for a limit of oneDNN's.
TEST(Layering, TheEnvironmentIsReadByNineFiles) {
  constexpr std::array<std::string_view, 9> kReaders = {
      "codegen/layouts/kept_times.cpp",         "codegen/cpu/clang/compiler.cpp", "codegen/cuda/nvrtc.cpp",
      "codegen/store/store_folder.cpp",         "engine/diagnosis/log_setup.cpp", "engine/diagnosis/reproducer.cpp",
      "engine/diagnosis/trace/trace_setup.cpp", "engine/options/options.cpp",     "preload/auto.cpp"};
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
