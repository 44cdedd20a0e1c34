// A custom graph compiler. It gets each captured graph once and returns one function for each of the graph's segments, the operators
// between two hooks or opaque nodes. This one replays them through ATen and prints when it is called.

#include <hindcast/graph.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <iostream>

namespace {

std::vector<hindcast::SegmentFunction> my_compiler(const std::shared_ptr<const hindcast::Graph>& graph) {
  std::vector<hindcast::SegmentFunction> functions;
  for (const hindcast::Segment& segment : graph->segments()) {
    functions.push_back([graph, segment](std::vector<torch::Tensor> inputs, const hindcast::Bindings& bindings) {
      std::cout << "  running a segment: " << inputs.size() << " tensors in, " << segment.outputs.size() << " out\n";
      return graph->run(segment, std::move(inputs), bindings);
    });
  }
  std::cout << "  compiled graph " << graph->id << ": " << functions.size() << " segments\n";
  return functions;
}

}  // namespace

int main() {
  auto w = torch::randn({4, 4}, torch::requires_grad());
  auto guard = hindcast::enable(hindcast::Compiler(my_compiler));
  for (const int batch : {3, 3, 8, 5}) {
    std::cout << "batch " << batch << '\n';
    const auto hidden = torch::randn({batch, 4}).mm(w).tanh();
    hidden.register_hook([](const torch::Tensor& grad) { return grad * 2; });
    hidden.mm(w).sum().backward();
  }
  std::cout << hindcast::stats() << '\n';
}
