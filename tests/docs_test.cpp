// Numbers and names of the code in the docs match the code; links lead somewhere; README is short.

#include <gtest/gtest.h>
#include <hindcast/hindcast.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/trace.h"
#include "cache/miss.h"
#include "codegen/cpu/memory/recycler.h"
#include "codegen/cpu/source.h"
#include "engine/compile/background.h"
#include "engine/counters/fallback.h"
#include "engine/cuda_graphs/recordings.h"
#include "hindcast/checkpoint.h"

namespace hindcast::tests::docs_test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = HINDCAST_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(kRoot / path);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string with_single_spaces(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

std::vector<std::string> docs() {
  std::vector<std::string> paths = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(fs::relative(entry.path(), kRoot));
  }
  return paths;
}

/// All matches of the regular expression's first group in a text.
std::vector<std::string> found(const std::string& text, const std::string& expression) {
  const std::regex regex(expression);
  std::vector<std::string> all;
  for (std::sregex_iterator i(text.begin(), text.end(), regex), end; i != end; ++i) all.push_back((*i)[1]);
  return all;
}

// -- values of the code, as the docs write them

std::string number(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}
std::string bytes(uint64_t value) { return value % (1 << 20) == 0 ? number(value >> 20) + " MiB" : number(value >> 10) + " KiB"; }
std::string word(bool value) { return value ? "true" : "false"; }

/// A value that is only in a source file, not in a header: the last match's group. Numbers are formatted as in the docs.
std::string written(const fs::path& file, const std::string& expression) {
  const std::vector<std::string> matches = found(read(file), expression);
  if (matches.empty()) return "(" + file.string() + " has no " + expression + ")";
  const std::string& last = matches.back();
  return std::all_of(last.begin(), last.end(), [](unsigned char c) { return std::isdigit(c); }) ? number(std::stoull(last)) : last;
}

struct Claim {
  std::string doc, sentence;  // {} stands for each value; spaces and line breaks are equivalent
  std::vector<std::string> values;
};

std::vector<Claim> claims_about_options() {
  const Options options;
  const std::string doc = "docs/options.md";
  const auto row = [&](const std::string& field, const std::string& value) { return Claim{doc, "| `" + field + "` | {} |", {value}}; };
  return {
      row("async", "`" + word(options.async) + "`"),
      row("deterministic", "`" + word(options.deterministic) + "`"),
      row("dynamic", options.dynamic == Dynamic::Automatic ? "`Dynamic::Automatic`" : "`Dynamic::Never`"),
      row("limit", number(options.limit)),
      row("cache_size", number(options.cache_size)),
      row("cache_bytes", bytes(options.cache_bytes)),
      row("back_off", "`" + word(options.back_off) + "`"),
      row("verify", "`" + word(options.verify) + "`"),
      row("nan_guard", "`" + word(options.nan_guard) + "`"),
      row("cuda_graphs", "`" + word(options.cuda_graphs) + "`"),
      row("require_cuda_graph", "`" + word(options.require_cuda_graph) + "`"),
      row("cuda_graph_bytes", bytes(options.cuda_graph_bytes)),
      row("collector", options.collector == Collector::Typed ? "`Collector::Typed`" : "`Collector::Visitor`"),
      row("enabled", "`" + word(options.enabled) + "`"),
      {"docs/debugging.md", "more structures in turn than {} |", {number(options.cache_size)}},
  };
}

std::vector<Claim> claims_about_limits() {
  const std::string payoff = "engine/cache/payoff.h", debugging = "docs/debugging.md", gpu = "docs/gpu.md";
  const std::string price = written(payoff, "kPrice = (\\d+)"), factor = written(payoff, "kCredit = (\\d+) \\* kPrice");
  return {
      {gpu, "once {} hits with the same sizes came before", {number(engine::kHitsBeforeRecording)}},
      {gpu, "Fewer than {} steps are given one by one", {number(engine::kFewestCalls)}},
      {gpu, "Up to {} sets of sizes", {number(engine::kMostRecordedSizes)}},
      {gpu, "A tensor below {} whose address changes", {bytes(engine::kLargestCopiedInput)}},
      {gpu, "After {} recordings that did not fit", {number(engine::kMostMisfits)}},
      {gpu, "more than {} would be copied for each step", {bytes(engine::kMostCopiedForACall)}},
      {debugging, "A file has at most {}; its last record", {bytes(base::TraceTarget().most_bytes)}},
      {debugging, "A plan of more than {} steps is looked at", {written("engine/diagnosis/step_times.cpp", "kMostLooks = (\\d+)")}},
      {debugging,
       "takes {} from a credit of {}. Each of its first {} hits",
       {price, number(std::stoull(price) * std::stoull(factor)), written(payoff, "kHitsThatCount = (\\d+)")}},
      {debugging, "came back {} times", {written(payoff, "kReturns = (\\d+)")}},
      {debugging, "After {} such calls", {written(payoff, "kPatience = (\\d+)")}},
      {debugging, "at last of {}.", {number(std::stoull(written(payoff, "kLongest = (\\d+)")) + 1)}},
      {debugging, "the last {} misses", {written("engine/counters/stats_recorder.h", "kRecentMisses = (\\d+)")}},
      {debugging, "The first {} such backwards", {written("engine/diagnosis/nan_guard.h", "kMostMessages = (\\d+)")}},
      {debugging, "held {} already", {bytes(engine::kMostWaitingBytes)}},
      {debugging, "large results of kernels ({} and more)", {bytes(codegen::cpu::Recycler::Limits{}.smallest)}},
      {"docs/aot.md", "After {} calls in a row", {written("engine/cache/back_off_policy.cpp", "kPatience = (\\d+)")}},
      {"docs/aot.md", "without a backward, {} calls are timed", {written("engine/cache/back_off_policy.cpp", "kTurns = (\\d+)")}},
      {"docs/aot.md",
       "as many as take {} ms, at most {}",
       {written("engine/cache/back_off_policy.cpp", "kMostLeftNs = (\\d+)'000'000"),
        written("engine/cache/back_off_policy.cpp", "kMostLeft = (\\d+)")}},
      {"docs/aot.md", "After {} such rounds, calls are timed again", {written("engine/cache/back_off_policy.cpp", "kLooks = (\\d+)")}},
      {debugging, "{} hits in a row of one capture", {written("engine/cache/back_off_policy.cpp", "kPatience = (\\d+)")}},
      {debugging, "of at most {} nodes are", {written("engine/backward.cpp", "kFewNodes = (\\d+)")}},
      {debugging, "followed by {} backwards that are timed", {written("engine/cache/back_off_policy.cpp", "kTurns = (\\d+)")}},
      {debugging,
       "as take {} ms, {} at most. These",
       {written("engine/cache/back_off_policy.cpp", "kMostLeftNs = (\\d+)'000'000"),
        written("engine/cache/back_off_policy.cpp", "kMostLeft = (\\d+)")}},
      {"docs/design-kernels.md",
       "Free buffers take at most {} MiB, or a sixteenth",
       {written("codegen/cpu/memory/recycler.cpp", "std::min\\(size_t\\{(\\d+)\\} << 20, memory / 16\\)")}},
      {"docs/design-kernels.md", "A thread keeps at most {} such", {written("codegen/cpu/memory/small_blocks.h", "kMost = (\\d+)")}},
      {"docs/design-kernels.md",
       "Results of {} MiB and more are written past the caches",
       {written("codegen/cpu/cost_model.cpp", "bytes >= int64_t\\{(\\d+)\\} << 20")}},
  };
}

std::vector<Claim> claims_about_saved_tensors() {
  const std::string doc = "docs/checkpoint.md";
  const CheckpointOptions options;
  const OffloadOptions offload;
  const auto row = [&](const std::string& field, bool value) { return Claim{doc, "| `" + field + "` | {} |", {word(value)}}; };
  return {row("preserve_rng_state", options.preserve_rng_state),
          row("early_stop", options.early_stop),
          row("check", options.check),
          {doc, "`OffloadOptions::min_bytes` large ({})", {bytes(offload.min_bytes)}},
          {doc, "`OffloadOptions::pin_memory` ({})", {word(offload.pin_memory)}}};
}

std::vector<Claim> claims_about_kernels() {
  const std::string design = "docs/design-kernels.md", costs = "codegen/cpu/cost_model.cpp";
  const auto power = [](const std::string& log) { return number(uint64_t{1} << std::stoull(log)); };
  return {
      {design,
       "parts of {} elements and blocks of {} rows",
       {number(codegen::cpu::kBlockLength), written("codegen/cpu/row_call.cpp", "constexpr int64_t kBlock = (\\d+)")}},
      {design, "a piece is shorter than {} elements", {written(costs, "kShortPiece = (\\d+)")}},
      {design,
       "up to 2^{} in float32, 2^{} in float64",
       {written("codegen/device/trigonometry.h", "kLargestOfHalfTurns = 0x1p(\\d+)f"),
        written("codegen/device/trigonometry.h", "double kLargestNear = 0x1p(\\d+)")}},
      {design,
       "Rows of fewer than {} elements that are not contiguous, in tensors of more than {} elements",
       {written("codegen/fuse/body.h", "kShortRow = (\\d+)"), written(costs, "kSmall = (\\d+)")}},
      {design,
       "in tensors of more than {} elements, whose segments have fewer than {} elements",
       {written(costs, "kFew = (\\d+)"), written(costs, "kLong = (\\d+)")}},
      {design, "Batch norms of more than {} elements", {power(written(costs, "kLargeNorm = 1 << (\\d+)"))}},
      {design, "in rows of more than {} elements", {written(costs, "kCachedRow = (\\d+)")}},
  };
}

std::vector<Claim> claims_about_versions() {
  const std::string find = "cmake/FindLibTorch.cmake", project = "python/pyproject.toml", version = "include/hindcast/version.h";
  const std::string made_for = written(find, "set\\(LibTorch_WANTED_VERSION ([0-9.]+)\\)");
  const std::string next = written(find, "KNOWN_VERSIONS [0-9.]+ ([0-9.]+)"), last = written(find, "KNOWN_VERSIONS [0-9. ]* ([0-9.]+)\\)");
  const std::string llvm = written("cmake/EmbeddedClang.cmake", "MATCHES \"\\^(\\d+)");
  return {
      {"README.md",
       "**LibTorch {}**, on Linux, with GCC {} or later. LibTorch {} to {} work too",
       {made_for, written("cmake/BuildSettings.cmake", "CMAKE_CXX_COMPILER_VERSION VERSION_LESS (\\d+)"), next, last}},
      {"include/hindcast/version.h",
       "HINDCAST_VERSION \"{}.{}.{}\"",
       {written(version, "VERSION_MAJOR (\\d+)"), written(version, "VERSION_MINOR (\\d+)"), written(version, "VERSION_PATCH (\\d+)")}},
      {"python/hindcast/__init__.py", "__version__ = \"{}\"", {written(version, "HINDCAST_VERSION \"([0-9.]+)\"")}},
      {"README.md", "find_package(hindcast {} REQUIRED)", {written(version, "HINDCAST_VERSION \"(\\d+\\.\\d+)")}},
      {"README.md", "Clang {} compiles them", {llvm}},
      {"docs/design.md", "| LLVM and Clang {} |", {llvm}},
      {"docs/libtorch-releases.md", "hindcast is made for {}:", {made_for}},
      {"docs/libtorch-releases.md", "compiles against {} to {} too", {next, last}},
      {"docs/python.md", "For the torch that is installed, {} to {}:", {made_for, last}},
      {"docs/python.md",
       "serves every Python from {} to {}.",
       {written(project, "requires-python = \">=([0-9.]+)\""), written(project, "Python :: (3\\.\\d+)")}},
      {"CONTRIBUTING.md", "formats C++ with clang-format {}.", {written("scripts/format.sh", "formatter=clang-format-(\\d+)")}},
  };
}

TEST(Docs, NumbersAreThoseOfTheCode) {
  for (const auto& claims :
       {claims_about_options(), claims_about_limits(), claims_about_saved_tensors(), claims_about_kernels(), claims_about_versions()}) {
    for (const Claim& claim : claims) {
      std::string sentence = claim.sentence;
      for (const std::string& value : claim.values) sentence.replace(sentence.find("{}"), 2, value);
      EXPECT_NE(with_single_spaces(read(claim.doc)).find(sentence), std::string::npos) << claim.doc << " should say: " << sentence;
    }
  }
}

TEST(Docs, ListEveryNameThatAProgramMeets) {
  const std::string debugging = read("docs/debugging.md");
  const auto has_row = [&](std::string_view name) {
    EXPECT_NE(debugging.find("| `" + std::string(name) + "` |"), std::string::npos) << name << " is not in a table of docs/debugging.md";
  };
  for (const std::string_view channel : base::kChannelNames) has_row(channel);
#define HC_FALLBACK_ROW(enumerator, warns, sentence) has_row(#enumerator);
  HC_FALLBACK_REASONS(HC_FALLBACK_ROW)
#undef HC_FALLBACK_ROW
#define HC_MISS_ROW(enumerator, words) has_row(#enumerator);
  HC_MISS_KINDS(HC_MISS_ROW)
#undef HC_MISS_ROW
  for (const char* reader : {"engine/options/options.cpp", "engine/diagnosis/log_setup.cpp", "engine/diagnosis/reproducer.cpp",
                             "engine/diagnosis/trace/trace_setup.cpp", "codegen/store/store_folder.cpp", "codegen/cpu/clang/compiler.cpp",
                             "codegen/cuda/nvrtc.cpp", "preload/auto.cpp"}) {
    for (const std::string& variable : found(read(reader), "\"(HINDCAST_[A-Z_]+)\"")) has_row(variable);
  }
}

/// "engine/{a,b}" is two folders, as in a shell.
std::vector<std::string> expanded(const std::string& folder) {
  const size_t open = folder.find('{');
  if (open == std::string::npos) return {folder};
  std::vector<std::string> all;
  for (const std::string& name : found(folder.substr(open), "([a-z_/]+)")) all.push_back(folder.substr(0, open) + name);
  return all;
}

// layering_test.cpp has the rule; its text is compared, so that page and rule change together.
TEST(Docs, DesignHasTheIncludeRule) {
  const std::string code = read("tests/layering_test.cpp");
  const size_t begin = code.find("kMayInclude = {") + 15;
  std::set<std::string> rule, page;
  const std::string rows = code.substr(begin, code.find("\n};", begin) - begin);
  const std::regex row("\\{\"([^\"]+)\",\\s*\\{([^}]*)\\}\\}");
  for (std::sregex_iterator i(rows.begin(), rows.end(), row), end; i != end; ++i) {
    for (const std::string& below : found((*i)[2], "\"([^\"]+)\"")) rule.insert((*i)[1].str() + " -> " + below);
  }
  const std::string design = read("docs/design.md");
  const std::regex line("\n([a-z_/]+) +->  ([^\n:]+)(?=\n)");
  for (std::sregex_iterator i(design.begin(), design.end(), line), end; i != end; ++i) {
    for (const std::string& item : found((*i)[2], "([a-z_/]+(?:\\{[a-z_/,]+\\})?)")) {
      for (const std::string& below : expanded(item)) {
        if ((*i)[2] != "nothing of ours") page.insert((*i)[1].str() + " -> " + below);
      }
    }
  }
  EXPECT_GT(rule.size(), 50U);
  for (const std::string& arrow : rule) EXPECT_TRUE(page.contains(arrow)) << "docs/design.md lacks " << arrow;
  for (const std::string& arrow : page)
    EXPECT_TRUE(rule.contains(arrow)) << "docs/design.md has " << arrow << ", tests/layering_test.cpp not";
}

// A second backend is written by following that page: a file of the first that it does not name would be forgotten.
TEST(Docs, DesignNamesTheFilesOfABackend) {
  const std::string design = read("docs/design-kernels.md");
  const size_t begin = design.find("## A new backend");
  const std::string section = design.substr(begin, design.find("\n## ", begin) - begin);
  for (const auto& entry : fs::directory_iterator(kRoot / "codegen/cpu")) {
    if (entry.path().extension() != ".h") continue;
    EXPECT_NE(section.find("`" + entry.path().stem().string() + "`"), std::string::npos)
        << "docs/design-kernels.md does not name " << entry.path();
  }
}

/// A heading as a link names it: lower case, spaces as dashes, nothing but letters, digits, dashes and underscores.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const unsigned char c : heading) {
    if (std::isalnum(c) || c == '_' || c == '-') anchor += static_cast<char>(std::tolower(c));
    if (c == ' ') anchor += '-';
  }
  return anchor;
}

TEST(Docs, EveryRelativeLinkLeadsSomewhere) {
  for (const std::string& doc : docs()) {
    for (const std::string& link : found(read(doc), "(?:\\]\\(|src=\")([^)\"\\s]+)")) {
      if (link.rfind("http", 0) == 0) continue;
      const size_t hash = link.find('#');
      const fs::path target = hash == 0 ? fs::path(doc) : (fs::path(doc).parent_path() / link.substr(0, hash)).lexically_normal();
      ASSERT_TRUE(fs::exists(kRoot / target)) << doc << " links to " << link;
      if (hash == std::string::npos) continue;
      bool is_there = false;
      for (const std::string& heading : found(read(target), "\n#+ ([^\n]+)")) is_there |= anchor_of(heading) == link.substr(hash + 1);
      EXPECT_TRUE(is_there) << doc << " links to " << link << ", which is no heading";
    }
  }
}

TEST(Docs, EveryFileThatIsNamedExists) {
  for (const std::string& doc : docs()) {
    for (const std::string& path : found(read(doc), "`([a-z_]+/[A-Za-z_/0-9.]*\\.(?:h|cpp|def|py|sh|cmake|table|toml|md))`")) {
      EXPECT_TRUE(fs::exists(kRoot / path)) << doc << " names " << path;
    }
  }
}

TEST(Docs, ReadmeIsShort) {
  const std::string readme = read("README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 200);
}

}  // namespace
}  // namespace hindcast::tests::docs_test
