// Graph::dot() and Graph::write_svg().

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <stdexcept>

#include <unistd.h>

#include "hindcast/hindcast.h"
#include "tests/support/kept_graphs.h"

namespace hindcast::tests {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::shared_ptr<const Graph> graph_with_a_hook() {
  KeptGraphs kept;
  const auto guard = hindcast::enable(kept.compiler());
  const auto x = at::ones({3, 4}).set_requires_grad(true), w = at::ones({4}).set_requires_grad(true);
  const auto y = x.sin() * w;
  y.register_hook([](const at::Tensor&) {});
  y.exp().sum().backward();
  return kept.graphs.at(0);
}

/// The first groups of all matches of `pattern` in `text`.
std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) found.insert((*at)[1]);
  return found;
}

TEST(Dot, DrawsEveryValueFromWhereItIsMadeToWhereItIsRead) {
  const std::string dot = graph_with_a_hook()->dot();
  EXPECT_TRUE(dot.starts_with("digraph backward {")) << dot;
  EXPECT_TRUE(dot.ends_with("}\n")) << dot;
  std::set<std::string> drawn = matches(dot, R"re("([^"]+)" \[label=)re");
  drawn.merge(matches(dot, R"re(\n  (i\d+) \[label=)re"));
  for (const std::string& from : matches(dot, R"re("([^"]*)" -> )re")) EXPECT_TRUE(drawn.contains(from)) << from << dot;
  for (const std::string& to : matches(dot, R"re(-> (i\d+);)re")) EXPECT_TRUE(drawn.contains(to)) << to << dot;
  EXPECT_GT(matches(dot, R"re(-> (i\d+);)re").size(), 5U) << dot;
}

TEST(Dot, LabelsWithTypesAndNodeCalls) {
  const std::string dot = graph_with_a_hook()->dot();
  EXPECT_THAT(dot, HasSubstr(R"(cos\nSinBackward0 (NodeCall )"));
  EXPECT_THAT(dot, HasSubstr(R"(cos: f32[3, 4][4, 1]cpu")"));
  EXPECT_THAT(dot, HasSubstr(R"(label="tangents_1\nf32[][]cpu", style=filled, fillcolor=lightgrey)"));
}

TEST(Dot, ColoursBoundariesAndAccumulation) {
  const std::string dot = graph_with_a_hook()->dot();
  EXPECT_EQ(matches(dot, R"re((i\d+) \[label="[^"]*", style=filled, fillcolor=orange\])re").size(), 1U) << dot;
  EXPECT_EQ(matches(dot, R"re((i\d+) \[label="[^"]*", style=filled, fillcolor=lightblue\])re").size(), 2U) << dot;
}

/// A folder of its own; restores PATH.
class Svg : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hindcast_svg_" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  static std::string refusal_of(const std::string& file) {
    try {
      graph_with_a_hook()->write_svg(file);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }
  static bool has_graphviz() { return std::system("command -v dot > /dev/null 2>&1") == 0; }
  size_t files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  const std::string path_ = std::getenv("PATH") ? std::getenv("PATH") : "";
  fs::path folder_;
};

TEST_F(Svg, IsWrittenByGraphviz) {
  if (!has_graphviz()) GTEST_SKIP() << "Graphviz' dot is not on PATH";
  const fs::path file = folder_ / "a graph's picture.svg";
  graph_with_a_hook()->write_svg(file);
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("<svg "));
  EXPECT_THAT(text, HasSubstr("SinBackward0 (NodeCall "));
  EXPECT_THAT(text, HasSubstr("</svg>"));
  EXPECT_EQ(files(), 1U) << "the intermediate file stays";
}

TEST_F(Svg, WithoutGraphvizSaysWhatToInstall) {
  setenv("PATH", folder_.c_str(), 1);
  EXPECT_EQ(refusal_of(folder_ / "graph.svg"),
            "hindcast::Graph::write_svg: Graphviz' program 'dot' is not on PATH; install the package graphviz");
  EXPECT_EQ(files(), 0U);
}

TEST_F(Svg, WithAnEmptyPathToo) {
  setenv("PATH", "", 1);
  EXPECT_THAT(refusal_of(folder_ / "graph.svg"), HasSubstr("install the package graphviz"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(Svg, NamesTheFileThatCannotBeWritten) {
  if (!has_graphviz()) GTEST_SKIP() << "Graphviz' dot is not on PATH";
  const fs::path file = folder_ / "no_such_folder" / "graph.svg";
  EXPECT_THAT(refusal_of(file), HasSubstr("cannot write " + file.string()));
}

}  // namespace
}  // namespace hindcast::tests
