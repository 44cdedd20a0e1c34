#include "engine/aot/graphs.h"

#include "base/format.h"
#include "capture/graph/graph.h"

#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <unordered_map>

namespace hindcast::engine {

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

}  // namespace hindcast::engine

namespace hindcast {

std::vector<at::Tensor> run_program(const Graph& program, const std::vector<at::Tensor>& inputs) {
  if (inputs.size() != program.inputs.size()) {
    throw std::invalid_argument(
        base::format("hindcast::run_program: {} tensors given, the program takes {}", inputs.size(), program.inputs.size()));
  }
  capture::Bindings bindings = capture::bindings_at_capture(*program.symbols);
  std::unordered_map<uint32_t, at::Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const capture::ValueId input = program.inputs[i];
    if (!input.defined()) continue;
    values[input.index] = inputs[i];
    const auto& sizes = program.values[input.index].sizes;
    for (size_t dim = 0; inputs[i].defined() && dim < sizes.size(); ++dim) {
      const capture::Expr& size = program.symbols->expr(sizes[dim]);
      if (size.kind == capture::ExprKind::IntSymbol)
        bindings.ints.at(static_cast<size_t>(size.payload.i)) = inputs[i].size(static_cast<int64_t>(dim));
    }
  }
  capture::Env env;
  if (!capture::Evaluator(*program.symbols).evaluate(bindings, env)) {
    throw std::invalid_argument("hindcast::run_program: the inputs' sizes are none that the program can have");
  }
  Graph::replay(values, program.instrs, env);
  std::vector<at::Tensor> outputs;
  for (const capture::ValueId output : program.outputs) outputs.push_back(output.defined() ? values.at(output.index) : at::Tensor());
  return outputs;
}

}  // namespace hindcast
