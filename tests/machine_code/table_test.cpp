// The table of kernels: the committed one, its files, and the comparison of a run's texts with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/machine_code/check_texts.h"
#include "tests/machine_code/make_table.h"
#include "tests/machine_code/spills.h"
#include "tests/machine_code/text_hash.h"

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A folder for one test.
class MachineCodeTable : public testing::Test {
 protected:
  MachineCodeTable() { fs::create_directories(folder); }
  ~MachineCodeTable() override { fs::remove_all(folder); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder + "/" + name) << text; }
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// The error for the files' lines.
  std::string refusal(const std::string& kernels, const std::string& hashes) const {
    write("kernels.table", "# By NVRTC\n" + kernels);
    write("hashes.table", hashes);
    try {
      read_table(folder);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }

  const std::string folder = testing::TempDir() + "machine_code_table." + std::to_string(getpid());
};

const std::string kHash(16, 'a'), kOther(16, 'b');

TEST_F(MachineCodeTable, IsReadAsItWasWritten) {
  const KernelUse all = {.registers = 255, .stack_bytes = 16, .spilled_bytes = 8, .shared_bytes = 1024};
  write_table(folder, {"NVRTC 1",
                       {{"a/X.y-1", {90, kHash, {{"rows", all}, {"dense", {.registers = 16}}}}},
                        {"b/Z-1", {80, kOther, {{"k", {.registers = 8}}}}}}});
  EXPECT_THAT(read(folder + "/kernels.table"), HasSubstr("\na/X.y-1 90 dense=16 rows=255,shared:1024,stack:16,spilled:8\nb/Z-1 80 k=8\n"));
  const Table table = read_table(folder);
  EXPECT_EQ(table.compiler, "NVRTC 1");
  ASSERT_EQ(table.rows.size(), 2U);
  const Row& row = table.rows.at("a/X.y-1");
  EXPECT_EQ(row.architecture, 90);
  EXPECT_EQ(row.hash, kHash);
  EXPECT_EQ(row.uses.at("rows"), all);
}

TEST_F(MachineCodeTable, IsCommittedAsItIsWritten) {
  const Table table = read_table(table_folder());
  EXPECT_GT(table.rows.size(), 1000U);
  write_table(folder, table);
  for (const std::string file : {"/kernels.table", "/hashes.table"}) {
    EXPECT_TRUE(read(folder + file) == read(table_folder() + file)) << file << " was edited: `make kernel-table` writes it";
    EXPECT_LT(fs::file_size(table_folder() + file), 300U << 10);
  }
  for (const auto& [label, row] : table.rows) EXPECT_EQ(row.architecture, architecture_of(label)) << label;
}

TEST_F(MachineCodeTable, OfNoFilesIsEmpty) { EXPECT_THAT(read_table(folder).rows, IsEmpty()); }

TEST_F(MachineCodeTable, AMalformedLineIsAnErrorThatNamesIt) {
  const std::string hashes = "a " + kHash + "\n";
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"a\n", "'a' is not a label and what follows"},
      {"a 90\n", "no entry point follows"},
      {"a 75 k=1\n", "does not begin with an architecture"},
      {"a 90 k\n", "'k' is not <entry point>=<registers>"},
      {"a 90 k=many\n", "'many' is not a number"},
      {"a 90 k=1x\n", "'1x' is not a number"},
      {"a 90 k=1,stack\n", "'stack' is not <kind>:<bytes>"},
      {"a 90 k=1,heap:8\n", "'heap' is none of"},
      {"a 90 k=1 k=2\n", "stands twice"},
      {"b 90 k=1\na 90 k=1\n", "'a' stands behind 'b'"},
      {"<<<<<<< ours\na 90 k=1\n", "does not begin with an architecture"},
  };
  for (const auto& [line, problem] : lines) {
    const std::string refused = refusal(line, hashes);
    EXPECT_THAT(refused, HasSubstr(problem)) << line;
    EXPECT_THAT(refused, testing::AllOf(HasSubstr("kernels.table:"), HasSubstr("make kernel-table"))) << line;
  }
  EXPECT_THAT(refusal("a 90 k=1\n", "a 123\n"), HasSubstr("hashes.table:1: '123' is not a hash"));
  EXPECT_THAT(refusal("a 90 k=1\n", ""), HasSubstr("'a' is missing"));
  EXPECT_THAT(refusal("a 90 k=1\n", hashes + "b " + kOther + "\n"), HasSubstr("hashes.table:2: 'b' is not in kernels.table"));
  write("kernels.table", "a 90 k=1\n");
  EXPECT_THROW(read_table(folder), std::invalid_argument) << "of no compiler";
}

TEST_F(MachineCodeTable, KnownUsesAreReadAsTheyWereWritten) {
  const std::string path = folder + "/known";
  EXPECT_THAT(read_known_uses(path), IsEmpty());
  const KnownUses known = {{kHash, {{"k", {.registers = 9, .spilled_bytes = 4}}}}};
  write_known_uses(path, known);
  EXPECT_EQ(read_known_uses(path), known);
  write("known", "nonsense");
  EXPECT_THROW(read_known_uses(path), std::invalid_argument);
}

TEST_F(MachineCodeTable, TextsHaveTheirPathsAsLabelsAndAreTakenOnce) {
  fs::create_directories(folder + "/one");
  fs::create_directories(folder + "/two");
  write("one/A.b-1.cu", "first");
  write("two/A.b-1.cu", "first");
  write("two/A.b-2.cu", "second");
  write("two/log.txt", "third");
  EXPECT_THAT(texts_in(folder), ElementsAre(testing::Pair("one/A.b-1", "first"), testing::Pair("two/A.b-2", "second")));
}

TEST(TextHash, IsOfAllThatMachineCodeDependsOn) {
  HC_GET_NVRTC(nvrtc);
  const std::string text = "#include \"one.h\"\n";
  const auto hash = [&](const std::string& of, int architecture, const std::string& two, const std::string& three) {
    const std::vector<codegen::DeviceHeader> headers = {{"one.h", "#include \"two.h\"\n"}, {"two.h", two}, {"three.h", three}};
    return hash_of(*nvrtc, of, architecture, headers);
  };
  const std::string same = hash(text, 90, "2", "3");
  EXPECT_EQ(same.size(), 16U);
  EXPECT_NE(hash(text + "\n", 90, "2", "3"), same);
  EXPECT_NE(hash(text, 80, "2", "3"), same);
  EXPECT_NE(hash(text, 90, "changed", "3"), same) << "a header that a header includes";
  EXPECT_EQ(hash(text, 90, "2", "changed"), same) << "a header that nobody includes";
}

class CheckOfTexts : public testing::Test {
 protected:
  static constexpr size_t kTexts = 16;

  void SetUp() override {
    nvrtc = codegen::cuda::Nvrtc::get(&why_not);
    if (nvrtc == nullptr) GTEST_SKIP() << why_not;
    for (size_t i = 0; i < kTexts; ++i)
      texts["suite/Test-" + std::to_string(i + 10)] = "extern \"C\" __global__ void k" + std::to_string(i) + "() {}\n";
  }
  Check check(const Table& table, Part part) { return check_texts(*nvrtc, texts, table, earlier, {part}); }
  /// The table with NVRTC's results for the texts.
  Table true_table() {
    check({}, {});
    Table table;
    for (const auto& [label, text] : texts) {
      const std::string hash = hash_of(*nvrtc, text, architecture_of(label));
      table.rows[label] = {architecture_of(label), hash, earlier.at(hash)};
    }
    earlier.clear();
    return table;
  }

  std::string why_not;
  const codegen::cuda::Nvrtc* nvrtc = nullptr;
  Texts texts;
  KnownUses earlier;
};

TEST_F(CheckOfTexts, APartOfTheNewOnesIsCompiledAndKnownFromThenOn) {
  const Check first = check({}, {11, 64});
  EXPECT_EQ(first.compiled, kTexts / 8);
  EXPECT_EQ(first.left_out, kTexts - kTexts / 8);
  EXPECT_THAT(first.problems, IsEmpty());
  const Check second = check({}, {11, 64});
  EXPECT_EQ(second.known, first.compiled);
  EXPECT_EQ(check({}, {}).left_out, 0U) << "a whole run";
}

TEST_F(CheckOfTexts, OfTheTableAPartIsCompiledAgain) {
  const Table table = true_table();
  const Check some = check(table, {3, 16});
  EXPECT_EQ(some.known, kTexts - 1);
  EXPECT_EQ(some.compiled_again, 1U);
  EXPECT_EQ(some.compiled + some.left_out, 0U);
  EXPECT_THAT(some.problems, IsEmpty());
}

TEST_F(CheckOfTexts, AWrongRowIsFoundByTheRunThatCompilesIt) {
  Table table = true_table();
  const std::string label = std::next(table.rows.begin(), 5)->first;
  table.rows.at(label).uses.begin()->second.registers += 1;
  EXPECT_THAT(check(table, {4, 16}).problems, IsEmpty());
  EXPECT_THAT(check(table, {5, 16}).problems, ElementsAre(testing::AllOf(HasSubstr(label), HasSubstr("make kernel-table"))));
}

TEST_F(CheckOfTexts, AKnownKernelThatSpillsIsAProblemWithoutACompile) {
  Table table = true_table();
  table.rows.begin()->second.uses.begin()->second.spilled_bytes = 400;
  const Check run = check(table, {1, 1000});
  EXPECT_EQ(run.compiled_again, 1U);
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr(table.rows.begin()->first + " for sm_")));
  EXPECT_THAT(run.problems.front(), testing::AllOf(HasSubstr("lacks registers"), HasSubstr("spilled:400")));
}

TEST_F(CheckOfTexts, ATextThatDoesNotCompileIsAnError) {
  texts = {{"suite/Test-1", "nonsense"}};
  EXPECT_THROW(check({}, {}), codegen::cuda::NvrtcError);
}

TEST_F(CheckOfTexts, ATableIsMadeOfWhatIsKnownAndOfNewTexts) {
  const std::string known = texts.begin()->first, gone(16, 'a');
  const std::string hash = hash_of(*nvrtc, texts.at(known), architecture_of(known));
  earlier = {{hash, {{"k0", {.registers = 77}}}}, {gone, {{"gone", {.registers = 1}}}}};
  size_t compiled = 0;
  const Table table = make_table(*nvrtc, texts, earlier, [&](size_t count, size_t of) {
    compiled = count;
    EXPECT_EQ(of, kTexts - 1);
  });
  EXPECT_EQ(compiled, kTexts - 1);
  EXPECT_EQ(table.compiler, nvrtc->identity());
  EXPECT_EQ(table.rows.size(), kTexts);
  EXPECT_EQ(table.rows.at(known).uses.at("k0").registers, 77);
  EXPECT_EQ(check(table, {1, 1000}).known, kTexts - 1);
}

TEST_F(CheckOfTexts, ASpillMayBeAllowed) {
  Table table = true_table();
  auto& [label, row] = *table.rows.begin();
  auto& [kernel, use] = *row.uses.begin();
  use.spilled_bytes = 400;
  const auto problems = [&](int allowed) {
    return check_texts(*nvrtc, texts, table, earlier, {{1, 1000}, false, {{{label, kernel}, allowed}}}).problems;
  };
  EXPECT_THAT(problems(400), IsEmpty());
  EXPECT_THAT(problems(399), Not(IsEmpty()));
}

TEST(Spills, ThatAreAllowedAreInTheTable) {
  const Table table = read_table(table_folder());
  for (const auto& [of, bytes] : read_allowed_spills(table_folder() + "/allowed_spills.table")) {
    const auto& [label, kernel] = of;
    ASSERT_TRUE(table.rows.contains(label) && table.rows.at(label).uses.contains(kernel)) << label << " " << kernel;
    const int spilled = table.rows.at(label).uses.at(kernel).spilled_bytes;
    EXPECT_TRUE(spilled > 64 && spilled <= bytes) << label << " " << kernel << " spills " << spilled << ": allowed_spills.table";
  }
}

TEST_F(MachineCodeTable, AMalformedAllowanceIsAnError) {
  write("allowed", "# what\na rows\n");
  try {
    read_allowed_spills(folder + "/allowed");
    FAIL() << "no exception";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("allowed:2: 'a rows' is not"));
  }
}

TEST(Spills, BelongToKernelsThatHaveAllRegistersTheyMayHave) {
  const std::string text =
      "extern \"C\" __global__ void __launch_bounds__(kThreads, 2) k(A a)\nextern \"C\" __global__ void __launch_bounds__(1024) wide(A "
      "a)\n";
  EXPECT_FALSE(lacks_registers(text, "wide", {.registers = 64, .spilled_bytes = 64}));
  EXPECT_TRUE(lacks_registers(text, "wide", {.registers = 64, .spilled_bytes = 72}));
  EXPECT_FALSE(lacks_registers(text, "wide", {.registers = 40, .spilled_bytes = 72})) << "ptxas chose more threads";
  EXPECT_FALSE(lacks_registers(text, "k", {.registers = 64, .spilled_bytes = 72})) << "it may have 128";
  EXPECT_TRUE(lacks_registers(text, "k", {.registers = 32, .spilled_bytes = 132})) << "too much for any reason";
}

}  // namespace
}  // namespace hindcast::tests
