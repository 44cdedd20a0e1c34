// README.md shows a program and its output. Both are checked: the program is examples/readme.cpp, character for character, and runs here;
// the picture next to it is of the captured graph.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "hindcast/graph.h"
#include "tests/support/trimmed.h"

// The program, its main() under another name. What it includes has been included above.
namespace readme_program {
#define main run
#include "examples/readme.cpp"
#undef main
}  // namespace readme_program

namespace hindcast::tests {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(std::string(HINDCAST_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The text between ```language and ``` that follows `mark`.
std::string block_after(const std::string& text, const std::string& mark, const std::string& language) {
  const size_t from = text.find(mark);
  const std::string fence = "```" + language + "\n";
  const size_t start = from == std::string::npos ? from : text.find(fence, from);
  if (start == std::string::npos) return "(README.md has no block of " + language + " after '" + mark + "')";
  const size_t begin = start + fence.size();
  return text.substr(begin, text.find("```", begin) - begin);
}

std::string output_of_the_program() {
  hindcast::reset();
  testing::internal::CaptureStdout();
  readme_program::run();
  return testing::internal::GetCapturedStdout();
}

TEST(Readme, ShowsTheProgramOfTheExamples) { EXPECT_EQ(block_after(read("README.md"), "ten lines", "cpp"), read("examples/readme.cpp")); }

TEST(Readme, ShowsWhatTheProgramPrints) {
  const std::string output = trimmed(output_of_the_program());
  const std::string shown = trimmed(block_after(read("README.md"), "it prints", "text"));
  EXPECT_TRUE(output.ends_with(shown)) << "it prints\n" << output << "README.md shows\n" << shown;
  EXPECT_GT(shown.size(), 500U);
}

TEST(Readme, ThePictureIsOfTheProgramsGraph) {
  hindcast::reset();
  std::vector<std::shared_ptr<const Graph>> graphs;
  {
    const auto keep = [&](const std::shared_ptr<const Graph>& graph) {
      graphs.push_back(graph);
      return std::vector<SegmentFunction>(graph->segments().size());
    };
    const auto weight = torch::ones({3, 4}, torch::requires_grad());
    const auto guard = hindcast::enable(Compiler(keep));
    for (int batch : {2, 5}) torch::ones({batch, 4}).mm(weight.t()).tanh().sum().backward();
  }
  ASSERT_EQ(graphs.size(), 2U);

  const std::string svg = read("docs/readme_graph.svg");
  const std::string dot = graphs[1]->dot();
  size_t labels = 0;
  for (size_t at = dot.find("label=\""); at != std::string::npos; at = dot.find("label=\"", at)) {
    at += std::string("label=\"").size();
    std::string label = dot.substr(at, dot.find('"', at) - at);
    for (size_t next; !label.empty(); label = next == std::string::npos ? "" : label.substr(next + 2)) {
      next = label.find("\\n");
      EXPECT_THAT(svg, testing::HasSubstr(">" + label.substr(0, next) + "<"));
      ++labels;
    }
  }
  EXPECT_GT(labels, 10U) << dot;
}

}  // namespace
}  // namespace hindcast::tests
