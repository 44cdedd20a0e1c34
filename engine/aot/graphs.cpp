#include "hindcast/aot_graphs.h"

#include "base/format.h"
#include "hindcast/graph.h"

#include <filesystem>
#include <ostream>
#include <stdexcept>

namespace hindcast::detail {

void print_programs(const std::vector<AotPrograms>& programs, std::ostream& out) {
  for (const AotPrograms& each : programs) {
    out << "# joint\n" << each.joint->print() << "# forward\n" << each.forward->print();
    if (each.backward) out << "# backward\n" << each.backward->print() << each.explanation;
  }
}

void draw_programs(const std::vector<AotPrograms>& programs, const std::string& path) {
  if (programs.empty()) {
    throw std::runtime_error("hindcast::draw_graph: there is no program yet; call the function, and backward() if it has gradients, first");
  }
  const std::filesystem::path whole(path);
  const auto draw = [&](const std::shared_ptr<const Graph>& graph, const char* part) {
    std::filesystem::path file = whole;
    file.replace_filename(base::format("{}.{}{}", whole.stem().string(), part, whole.extension().string()));
    if (graph) graph->write_svg(file.string());
  };
  draw(programs.front().joint, "joint");
  draw(programs.front().forward, "forward");
  draw(programs.front().backward, "backward");
}

}  // namespace hindcast::detail

namespace hindcast {

std::vector<at::Tensor> run_program(const Graph& program, const std::vector<at::Tensor>& inputs) { return program.run(inputs); }

}  // namespace hindcast
