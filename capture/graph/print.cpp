// A graph as text, in the words of PyTorch's compiled autograd log, and as a picture.

#include "capture/graph/graph.h"
#include "base/format.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace hindcast::capture {
namespace {

std::string_view short_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kComplexFloat:
      return "c64";
    case at::kComplexDouble:
      return "c128";
    case at::kLong:
      return "i64";
    case at::kInt:
      return "i32";
    case at::kShort:
      return "i16";
    case at::kChar:
      return "i8";
    case at::kByte:
      return "u8";
    case at::kBool:
      return "b8";
    default:
      return c10::toString(dtype);
  }
}

template <class List, class Text>
std::string join(const List& list, Text text) {
  std::string result;
  for (const auto& item : list) {
    if (!result.empty()) result += ", ";
    result += text(item);
  }
  return result;
}

// Names as FX gives them: the op's name, numbered from its second use on.
class Names {
 public:
  explicit Names(const Graph& graph) : graph_(graph), names_(graph.values.size()) {
    for (size_t i = 0; i < graph.resume_inputs.size(); ++i) name(graph.resume_inputs[i], "tangents_" + std::to_string(i + 1));
    size_t saved = 0;
    for (const ValueId value : graph.tensor_inputs) {
      if (value.defined()) name(value, "saved_" + std::to_string(++saved));
    }
    for (const Instr& instr : graph.instrs) {
      for (const ValueId value : instr.outputs) name(value, unique(base_name(instr)));
    }
  }
  const std::string& operator[](ValueId value) const {
    static const std::string none = "None";
    return value.defined() ? names_[value.index] : none;
  }
  static std::string base_name(const Instr& instr) {
    switch (instr.kind) {
      case InstrKind::Hook:
        return "call_hook";
      case InstrKind::CallNode:
        return "call_node";
      case InstrKind::AddGrads:
        return "add";
      default:
        break;
    }
    std::string name = instr.op->operator_name().name;
    name = name.substr(name.find("::") + 2);
    while (name.ends_with('_')) name.pop_back();
    return name;
  }

 private:
  void name(ValueId value, std::string text) {
    if (value.defined()) names_[value.index] = std::move(text);
  }
  std::string unique(const std::string& base) {
    const size_t n = counts_[base]++;
    return n == 0 ? base : base + "_" + std::to_string(n);
  }
  const Graph& graph_;
  std::vector<std::string> names_;
  std::map<std::string, size_t> counts_;
};

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), names_(graph) {}

  std::string text() {
    out_ << "===== Compiled autograd graph =====\n"
         << "class CompiledAutograd" << graph_.id << "(torch.nn.Module):\n    def forward(self, inputs, sizes, scalars, hooks):\n";
    for (size_t i = 0; i < graph_.resume_inputs.size(); ++i) {
      if (graph_.resume_inputs[i].defined()) line(base::format("{} = inputs[{}]", typed(graph_.resume_inputs[i]), i));
    }
    for (size_t i = 0; i < graph_.tensor_inputs.size(); ++i) {
      if (graph_.tensor_inputs[i].defined())
        line(base::format("{} = inputs[{}]", typed(graph_.tensor_inputs[i]), graph_.resume_inputs.size() + i));
    }
    for (size_t s = 0; s < graph_.symbols->int_symbols(); ++s) line(base::format("s{} = sizes[{}]", s, s));
    for (size_t s = 0; s < graph_.symbols->float_symbols(); ++s) line(base::format("f{} = scalars[{}]", s, s));
    uint32_t call = 0xffffffffu;
    for (const Instr& instr : graph_.instrs) {
      if (instr.kind == InstrKind::NodeStart || instr.kind == InstrKind::Release) continue;
      if (instr.call != call) {
        call = instr.call;
        line(base::format("\n         # {} (NodeCall {})", graph_.node_names[call], call + 1));
      }
      print(instr);
    }
    line("\n        _exec_final_callbacks_stub = exec_final_callbacks_stub()");
    std::vector<ValueId> results;
    for (const Instr& instr : graph_.instrs) {
      if (instr.kind == InstrKind::Capture) results.push_back(instr.inputs[0]);
    }
    line(base::format("return [{}]", join(results, [&](ValueId value) { return names_[value]; })));
    if (!graph_.symbols->relations().empty()) {
      out_ << "    # guards: " << join(graph_.symbols->relations(), [&](const Relation& r) { return graph_.symbols->describe(r); }) << "\n";
    }
    return out_.str();
  }

  std::string type(ValueId id) const {
    const Value& value = graph_.values[id.index];
    if (!value.defined) return "None";
    return base::format("{}[{}][{}]{}", short_dtype(value.dtype), join(value.sizes, [&](ExprId e) { return graph_.symbols->str(e); }),
                        join(value.strides, [](int64_t s) { return std::to_string(s); }), value.device.str());
  }
  std::string typed(ValueId id) const { return base::format("{}: \"{}\"", names_[id], type(id)); }

  std::string right_side(const Instr& instr) const {
    const auto inputs = join(instr.inputs, [&](ValueId value) { return names_[value]; });
    switch (instr.kind) {
      case InstrKind::Op:
        return base::format("{}({})", op_name(*instr.op), arguments(instr.args));
      case InstrKind::Mutate: {
        std::string target = base::format("clone({})", names_[instr.base]);
        for (const ViewStep& view : instr.views)
          target += "." + std::string(view.op.operator_name().name.substr(6)) + "(" + arguments(view.args, view.self_arg) + ")";
        return base::format("{}({}; {})", op_name(*instr.op), target, arguments(instr.args, instr.target_arg));
      }
      case InstrKind::AddGrads:
        return base::format("torch.ops.aten.add.Tensor({})", inputs);
      case InstrKind::Hook: {
        static constexpr const char* kinds[] = {"tensor_pre_hook", "pre_hook", "post_hook"};
        return base::format("call_hook(hooks[{}], {}, hook_type = '{}')", instr.call, inputs, kinds[static_cast<int>(instr.stage)]);
      }
      case InstrKind::CallNode:
        return base::format("call_node({}, {})", graph_.node_names[instr.call], inputs);
      case InstrKind::Accumulate:
        return base::format("accumulate_grad_({})", inputs);
      default:
        return inputs;
    }
  }

 private:
  void line(const std::string& text) { out_ << "        " << text << "\n"; }

  void print(const Instr& instr) {
    if (instr.kind == InstrKind::Capture) return;
    if (instr.kind == InstrKind::Accumulate) return line(base::format("accumulate_grad_ = {}", right_side(instr)));
    if (instr.outputs.size() == 1) return line(base::format("{} = {}", typed(instr.outputs[0]), right_side(instr)));
    line(base::format("{} = {}", join(instr.outputs, [&](ValueId value) { return typed(value); }), right_side(instr)));
  }

  static std::string op_name(const c10::OperatorHandle& op) {
    const auto& name = op.operator_name();
    std::string text = name.name;
    if (const size_t colons = text.find("::"); colons != std::string::npos) text.replace(colons, 2, ".");
    return "torch.ops." + text + "." + (name.overload_name.empty() ? "default" : name.overload_name);
  }

  std::string arguments(const std::vector<Arg>& args, uint32_t skipped = 0xffffffffu) const {
    std::string text;
    for (uint32_t i = 0; i < args.size(); ++i) {
      if (i == skipped) continue;
      if (!text.empty()) text += ", ";
      text += argument(args[i]);
    }
    return text;
  }

  std::string argument(const Arg& arg) const {
    const auto value_names = [&] { return join(arg.values, [&](ValueId value) { return names_[value]; }); };
    const auto expressions = [&] { return join(arg.exprs, [&](ExprId e) { return graph_.symbols->str(e); }); };
    switch (arg.kind) {
      case Arg::Kind::Value:
        return value_names();
      case Arg::Kind::ValueList:
      case Arg::Kind::OptionalValueList:
        return "[" + value_names() + "]";
      case Arg::Kind::Int:
      case Arg::Kind::Float:
        return expressions();
      case Arg::Kind::IntList:
        return "[" + expressions() + "]";
      case Arg::Kind::Constant:
        break;
    }
    if (arg.constant.isTensor()) return arg.constant.toTensor().defined() ? "constant" : "None";
    std::ostringstream text;
    text << arg.constant;
    return text.str();
  }

  const Graph& graph_;
  Names names_;
  std::ostringstream out_;
};

}  // namespace

std::string Graph::print() const { return Printer(*this).text(); }

std::string Graph::dot() const {
  const Printer printer(*this);
  const Names names(*this);
  std::ostringstream out;
  out << "digraph backward {\n  node [shape=box, fontname=monospace, fontsize=10];\n";
  std::vector<std::string> maker(values.size());
  const auto input = [&](ValueId value) {
    if (!value.defined()) return;
    maker[value.index] = names[value];
    out << "  \"" << names[value] << "\" [label=\"" << names[value] << "\\n"
        << printer.type(value) << "\", style=filled, fillcolor=lightgrey];\n";
  };
  for (const ValueId value : resume_inputs) input(value);
  for (const ValueId value : tensor_inputs) input(value);
  for (size_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    if (instr.kind == InstrKind::NodeStart || instr.kind == InstrKind::Release || instr.kind == InstrKind::Capture) continue;
    const std::string id = "i" + std::to_string(i);
    const bool effect = instr.kind == InstrKind::Accumulate;
    std::string label = effect ? std::string("accumulate_grad_") : Names::base_name(instr);
    label += "\\n" + node_names[instr.call] + " (NodeCall " + std::to_string(instr.call + 1) + ")";
    for (const ValueId value : instr.outputs) {
      maker[value.index] = id;
      label += "\\n" + names[value] + ": " + printer.type(value);
    }
    out << "  " << id << " [label=\"" << label << "\""
        << (is_boundary(instr) ? ", style=filled, fillcolor=orange"
            : effect           ? ", style=filled, fillcolor=lightblue"
                               : "")
        << "];\n";
    const auto edge = [&](ValueId value) {
      if (value.defined()) out << "  \"" << maker[value.index] << "\" -> " << id << ";\n";
    };
    for (const Arg& arg : instr.args) std::for_each(arg.values.begin(), arg.values.end(), edge);
    std::for_each(instr.inputs.begin(), instr.inputs.end(), edge);
    edge(instr.base);
  }
  out << "}\n";
  return out.str();
}

void Graph::write_svg(const std::string& path) const {
  if (std::system("command -v dot > /dev/null 2>&1") != 0) {
    throw std::runtime_error("hindcast::Graph::write_svg: Graphviz' program 'dot' is not on PATH; install the package graphviz");
  }
  const std::string source = path + ".dot";
  {
    std::ofstream file(source);
    file << dot();
    if (!file) throw std::runtime_error("hindcast::Graph::write_svg: cannot write " + source);
  }
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  quoted += "'";
  const int status = std::system(("dot -Tsvg -o " + quoted + " " + quoted.substr(0, quoted.size() - 1) + ".dot'").c_str());
  std::filesystem::remove(source);
  if (status != 0) throw std::runtime_error("hindcast::Graph::write_svg: dot failed to write " + path);
}

}  // namespace hindcast::capture
