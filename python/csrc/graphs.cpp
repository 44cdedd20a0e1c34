#include "python/csrc/graphs.h"

#include "base/fork.h"
#include "capture/graph/print.h"

#include <c10/util/Exception.h>

#include <map>
#include <mutex>
#include <sstream>
#include <unordered_map>

namespace hindcast::python {
namespace {

using capture::Arg;
using capture::Graph;
using capture::Instr;
using capture::ValueId;

struct Graphs {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
  std::map<int64_t, std::shared_ptr<const Graph>> by_number;
  int64_t last = 0;
};
Graphs& all_graphs() {
  static constinit base::MadeOnce<Graphs> graphs;
  return graphs.get();
}

std::shared_ptr<const Graph> find_graph(int64_t number) {
  const std::lock_guard lock(all_graphs().mutex);
  const auto found = all_graphs().by_number.find(number);
  TORCH_CHECK_VALUE(found != all_graphs().by_number.end(), "no graph ", number);
  return found->second;
}

class Nodes {
 public:
  explicit Nodes(const Graph& graph) : graph_(graph), names_(capture::Printer(graph).names()) {}

  NodeColumns columns() {
    for (const ValueId input : graph_.inputs) {
      if (input.defined()) add("placeholder", {}, {input});
    }
    for (const Instr& instr : graph_.instrs) add(instr);
    std::vector<std::string> outputs;
    for (const ValueId output : graph_.outputs) outputs.push_back(name(output));
    add("output", std::move(outputs), {});
    return std::move(columns_);
  }

 private:
  std::string name(ValueId value) const {
    return value.defined() && graph_.values[value.index].defined ? "%" + names_[value.index] : "None";
  }

  template <class List, class Text>
  static std::string join(const List& list, const Text& text) {
    std::string joined;
    for (const auto& item : list) joined += (joined.empty() ? "" : ", ") + text(item);
    return "[" + joined + "]";
  }

  std::string argument(const Arg& arg) const {
    const auto expression = [&](capture::ExprId expr) { return graph_.symbols->str(expr); };
    const auto value = [&](ValueId id) { return name(id); };
    switch (arg.kind) {
      case Arg::Kind::Value:
        return name(arg.values[0]);
      case Arg::Kind::ValueList:
      case Arg::Kind::OptionalValueList:
        return join(arg.values, value);
      case Arg::Kind::Int:
      case Arg::Kind::Float:
        return expression(arg.exprs[0]);
      case Arg::Kind::IntList:
        return join(arg.exprs, expression);
      case Arg::Kind::Constant:
        break;
    }
    if (arg.constant.isBool()) return arg.constant.toBool() ? "True" : "False";
    if (arg.constant.isTensor()) return arg.constant.toTensor().defined() ? "constant" : "None";
    std::ostringstream text;
    text << arg.constant;
    return text.str();
  }

  void add(const Instr& instr) {
    std::vector<std::string> args;
    for (const Arg& arg : instr.args) args.push_back(argument(arg));
    for (const ValueId input : instr.inputs) args.push_back(name(input));
    std::string op = "add_gradients";
    if (instr.op) {
      const c10::OperatorName& called = instr.op->operator_name();
      op = called.overload_name.empty() ? called.name : called.name + "." + called.overload_name;
    }
    add(std::move(op), std::move(args), {instr.outputs.begin(), instr.outputs.end()});
  }

  void add(std::string op, std::vector<std::string> args, const std::vector<ValueId>& outputs) {
    auto& [ops, all_args, names, dtypes, shapes] = columns_;
    ops.push_back(std::move(op));
    all_args.push_back(std::move(args));
    for (auto* column : {&names, &dtypes, &shapes}) column->emplace_back();
    for (const ValueId output : outputs) {
      if (!output.defined()) continue;
      const capture::Value& value = graph_.values[output.index];
      names.back().push_back(name(output));
      dtypes.back().emplace_back(value.dtype == at::ScalarType::Undefined ? "None" : c10::toString(value.dtype));
      shapes.back().push_back(join(value.sizes, [&](capture::ExprId size) { return graph_.symbols->str(size); }));
    }
  }

  const Graph& graph_;
  const std::vector<std::string> names_;
  NodeColumns columns_;
};

}  // namespace

int64_t keep_graph(std::shared_ptr<const Graph> graph) {
  if (!graph) return 0;
  const std::lock_guard lock(all_graphs().mutex);
  const int64_t number = ++all_graphs().last;
  all_graphs().by_number.emplace(number, std::move(graph));
  return number;
}

void forget_graph(int64_t number) {
  std::shared_ptr<const Graph> gone;  // destroyed after the lock is released
  const std::lock_guard lock(all_graphs().mutex);
  const auto found = all_graphs().by_number.find(number);
  if (found == all_graphs().by_number.end()) return;
  gone = std::move(found->second);
  all_graphs().by_number.erase(found);
}

std::string graph_text(int64_t number) { return find_graph(number)->print(); }
std::string graph_dot(int64_t number) { return find_graph(number)->dot(); }
void write_svg(int64_t number, const std::string& path) { find_graph(number)->write_svg(path); }
NodeColumns graph_nodes(int64_t number) {
  const auto graph = find_graph(number);
  return Nodes(*graph).columns();
}

OptionalTensorList run_graph(int64_t number, const OptionalTensorList& inputs) {
  const auto graph = find_graph(number);
  TORCH_CHECK_VALUE(inputs.size() == graph->inputs.size(), "the graph takes ", graph->inputs.size(), " tensors, not ", inputs.size());
  std::unordered_map<uint32_t, at::Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::optional<at::Tensor> input = inputs.get(i);
    if (graph->inputs[i].defined() && input) values[graph->inputs[i].index] = *input;
  }
  graph->replay(values);
  OptionalTensorList outputs;
  for (const ValueId output : graph->outputs) {
    const auto found = output.defined() ? values.find(output.index) : values.end();
    outputs.push_back(found != values.end() && found->second.defined() ? std::optional(found->second) : std::nullopt);
  }
  return outputs;
}

}  // namespace hindcast::python
