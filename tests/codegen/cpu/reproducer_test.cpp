// What Options::verify refused is written to a folder, whose program compiles without hindcast and names the wrong kernel.

#include "engine/diagnosis/reproducer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>

#include "tests/codegen/fuse/captured_groups.h"
#include "tests/codegen/store/temporary_folder.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::reproducer_test {
namespace {

using codegen::store::contents_of;
using codegen::store::TemporaryFolder;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// A captured graph, one of its groups and the group's inputs.
struct Captured {
  explicit Captured(const std::function<void()>& backward) : graph(captured_graph(backward)) {
    group = codegen::fuse(*graph, codegen::cpu::cost_model()).groups.at(0);
    for (const auto input : codegen::inputs_of(group)) {
      const auto& value = graph->values[input.index];
      std::vector<int64_t> sizes;
      for (const auto size : value.sizes) sizes.push_back(graph->symbols->hint(size));
      given[input.index] = at::empty_strided(sizes, value.strides, value.dtype).zero_();
    }
  }

  std::string write() const { return engine::write_reproducer({*graph, given, "its result 0 is off", &group}); }

  std::shared_ptr<const Graph> graph;
  codegen::Group group;
  std::unordered_map<uint32_t, at::Tensor> given;
};

void pointwise() {
  const auto x = at::randn({6, 4}).set_requires_grad(true);
  x.mul(2).tanh().mul(0.25).sum().backward();
}

void by_rows() {
  const auto x = at::randn({6, 16}).set_requires_grad(true), w = at::randn({16}).set_requires_grad(true);
  at::layer_norm(x.mul(2), {16}, w, w).tanh().sum().backward();
}

void of_complex_numbers() {
  const auto x = at::randn({6, 4}, at::kComplexFloat).set_requires_grad(true);
  x.mul(c10::complex<double>(2, 1)).tanh().mul(0.25).sum().backward(at::ones({}, at::kComplexFloat));
}

int shell(const fs::path& folder, const std::string& command) {
  return WEXITSTATUS(std::system(("cd '" + folder.string() + "' && " + command).c_str()));
}

const std::string kTorch = HINDCAST_TORCH_INCLUDE_DIR "/..";

bool compile_main(const fs::path& folder) { return shell(folder, "c++ -std=c++20 -I. -isystem " + kTorch + "/include -c main.cpp") == 0; }

/// The exit status of the folder's program.
int run(const fs::path& folder) {
  const std::string link = "c++ -std=c++20 -ffp-contract=off -fno-math-errno -I. main.o kernel.cpp -o reproducer -L" + kTorch +
                           "/lib -Wl,-rpath," + kTorch + "/lib -Wl,--allow-shlib-undefined -ltorch -ltorch_cpu -lc10";
  return shell(folder, link) == 0 ? shell(folder, "./reproducer") : -1;
}

TEST(Reproducer, HoldsTheGraphTheInputsAndTheKernel) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const Captured captured(pointwise);
  const fs::path folder = captured.write();
  ASSERT_EQ(folder.parent_path(), temporary.path() / "hindcast-reproducers");
  EXPECT_THAT(contents_of(folder / "reason.txt"), HasSubstr("its result 0 is off"));
  EXPECT_EQ(contents_of(folder / "graph.txt"), captured.graph->print());
  EXPECT_THAT(contents_of(folder / "inputs.txt"), HasSubstr(": Float[6, 4], from 0 to 0, strides [4, 1]"));
  EXPECT_THAT(contents_of(folder / "kernel.cpp"), HasSubstr("void dense("));
  EXPECT_TRUE(fs::exists(folder / "codegen/device/ops.h"));
  EXPECT_NE(captured.write(), folder);
}

TEST(Reproducer, ItsProgramPassesAKernelThatIsRightAndFindsOneThatIsWrong) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const fs::path folder = Captured(pointwise).write();
  ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
  EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
  std::string text = contents_of(folder / "kernel.cpp");
  for (size_t at = text.find("tanh"); at != std::string::npos; at = text.find("tanh", at)) text.replace(at, 4, "sigmoid");
  std::ofstream(folder / "kernel.cpp") << text;
  EXPECT_EQ(run(folder), 1) << text;
}

TEST(Reproducer, ItsProgramRunsKernelsByRows) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const Captured captured(by_rows);
  ASSERT_TRUE(captured.group.body.by_rows);
  const fs::path folder = captured.write();
  ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
  EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
}

TEST(Reproducer, ItsProgramRunsKernelsByRowsOfSeveralChannels) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const Captured captured([] {
    const auto x = at::randn({3, 8, 4, 5}).set_requires_grad(true), weight = at::randn({8}).set_requires_grad(true);
    at::silu(at::group_norm(x, 4, weight, at::randn({8}).set_requires_grad(true))).mul(x).sum().backward();
  });
  ASSERT_NE(captured.group.channels, 0U);
  const fs::path folder = captured.write();
  ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
  EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
  std::string text = contents_of(folder / "kernel.cpp");
  const size_t added = text.find(", ", text.find("at.add_to_channel("));
  ASSERT_NE(added, std::string::npos) << text;
  text.insert(added + 2, "2 * ");
  std::ofstream(folder / "kernel.cpp") << text;
  EXPECT_EQ(run(folder), 1) << text;
}

// A channels-last image and the gradient of a per-channel factor; the image alone.
TEST(Reproducer, ItsProgramTakesTheOrderOfMemory) {
  for (const bool by_rows : {true, false}) {
    const TemporaryFolder temporary;
    const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
    const Captured captured([&] {
      const auto x = at::randn({2, 32, 3, 5}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
      (x * at::randn({32, 1, 1}).set_requires_grad(by_rows)).sin().sum().backward();
    });
    ASSERT_EQ(captured.group.body.by_rows, by_rows);
    ASSERT_FALSE(captured.group.orders[0].empty());
    const fs::path folder = captured.write();
    ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
    EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
  }
}

TEST(Reproducer, ItsProgramLooksAtBothPartsOfComplexNumbers) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const fs::path folder = Captured(of_complex_numbers).write();
  ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
  EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
  std::string text = contents_of(folder / "kernel.cpp");
  const std::string stored = "at.store(Index<0>(), ";
  text.insert(text.find(stored) + stored.size(), "conj<complex64>(");
  text.insert(text.find(';', text.find(stored)), ")");
  std::ofstream(folder / "kernel.cpp") << text;
  EXPECT_EQ(run(folder), 1) << text;
}

TEST(Reproducer, ItsProgramRunsKernelsThatMakeTheirResultInParts) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const Captured captured([] {
    const auto x = at::randn({6, 16}).set_requires_grad(true);
    const auto parts = x.chunk(2, 1);
    (parts[0].tanh() * parts[1]).sum().backward();
  });
  ASSERT_EQ(captured.group.concats.size(), 1U);
  const fs::path folder = captured.write();
  ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
  EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
}

TEST(Reproducer, ItsProgramRunsKernelsThatReadATensorInTwoPlaces) {
  const TemporaryFolder temporary;
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path());
  const Captured captured([] {
    const auto x = at::randn({6, 4}).set_requires_grad(true), y = x.tanh();
    (y.slice(0, 1) + y.slice(0, 0, -1)).backward(at::ones({5, 4}));
  });
  ASSERT_EQ(captured.group.loads.size(), 3U);
  ASSERT_EQ(captured.group.loads[0], captured.group.loads[1]);
  const fs::path folder = captured.write();
  ASSERT_TRUE(compile_main(folder)) << contents_of(folder / "main.cpp");
  EXPECT_EQ(run(folder), 0) << contents_of(folder / "main.cpp");
}

TEST(Reproducer, AFolderThatCannotBeWrittenIsAWarning) {
  const TemporaryFolder temporary;
  std::ofstream(temporary.path() / "file") << "in the way";
  const Variable place("HINDCAST_REPRODUCER_DIR", temporary.path() / "file");
  LogCapture logs("");
  EXPECT_EQ(Captured(pointwise).write(), "");
  EXPECT_EQ(logs.count("warning: no reproducer of what was refused: "), 1U) << logs.text();
}

TEST(Reproducer, ZeroMeansNowhere) {
  const Variable place("HINDCAST_REPRODUCER_DIR", "0");
  LogCapture logs("");
  EXPECT_EQ(Captured(pointwise).write(), "");
  EXPECT_EQ(logs.text(), "");
}

}  // namespace
}  // namespace hindcast::tests::reproducer_test
