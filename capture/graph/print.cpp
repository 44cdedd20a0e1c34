#include "capture/graph/print.h"

#include "base/fork.h"
#include "base/format.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
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

std::string op_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  std::string text = name.name;
  if (const size_t colons = text.find("::"); colons != std::string::npos) text.replace(colons, 2, ".");
  return "torch.ops." + text + "." + (name.overload_name.empty() ? "default" : name.overload_name);
}

}  // namespace

// ---- what derived classes override

std::string Printer::head() const {
  return base::format("===== Graph =====\nclass Graph{}(torch.nn.Module):\n    def forward(self, inputs, sizes, scalars):\n", graph_.id);
}

std::vector<Printer::Input> Printer::inputs() const {
  std::vector<Input> named;
  for (size_t i = 0; i < graph_.inputs.size(); ++i)
    named.push_back({graph_.inputs[i], base::format("arg{}", i), base::format("inputs[{}]", i)});
  return named;
}

std::string Printer::name_of(const Instr&) const { return "event"; }
std::string Printer::text_of(const Instr& event, const std::string& inputs) const {
  return base::format("event_{}({})", event.event, inputs);
}
std::string Printer::colour_of(const Instr& event) const { return is_barrier(event) ? "orange" : "lightblue"; }
std::string Printer::label_of_origin(uint32_t origin) const { return graph_.origins[origin]; }

// ---- names, as in FX: the op's name, numbered from its second use on

void Printer::name_values() {
  const auto is_named = [&](ValueId value) { return !value.defined() || !names_[value.index].empty(); };
  if (graph_.names) {
    std::copy_n(graph_.names->begin(), std::min(graph_.names->size(), names_.size()), names_.begin());
    for (const std::string& name : names_) taken_.insert(name);
  }
  for (const Input& input : inputs()) {
    if (!is_named(input.value)) names_[input.value.index] = unique(input.name);
  }
  for (const Instr& instr : graph_.instrs) {
    for (const ValueId value : instr.outputs) {
      if (value.defined() && is_named(value)) continue;
      const std::string text = unique(prefix_of(instr) + base_name(instr));
      if (value.defined()) names_[value.index] = text;
    }
  }
}

std::string Printer::unique(const std::string& base) {
  for (;;) {
    const size_t n = counts_[base]++;
    std::string name = n == 0 ? base : base + "_" + std::to_string(n);
    if (!taken_.contains(name)) return name;
  }
}

std::string Printer::base_name(const Instr& instr) const {
  if (instr.kind == InstrKind::Event) return name_of(instr);
  if (instr.kind == InstrKind::AddGrads) return "add";
  std::string name = instr.op->operator_name().name;
  name = name.substr(name.find("::") + 2);
  while (name.ends_with('_')) name.pop_back();
  return name;
}

const std::string& Printer::name(ValueId value) const {
  static constinit base::MadeOnce<const std::string> none;
  return value.defined() ? names_[value.index] : none.get("None");
}

std::string Printer::type(ValueId id) const {
  const Value& value = graph_.values[id.index];
  if (!value.defined) return "None";
  return base::format("{}[{}][{}]{}", short_dtype(value.dtype), join(value.sizes, [&](ExprId e) { return graph_.symbols->str(e); }),
                      join(value.strides, [](int64_t s) { return std::to_string(s); }), value.device.str());
}

std::string Printer::typed(ValueId id) const { return base::format("{}: \"{}\"", name(id), type(id)); }

std::string Printer::list(const ValueIds& values) const {
  return join(values, [&](ValueId value) { return name(value); });
}

// ---- the text

std::string Printer::text() {
  name_values();
  out_ << head();
  for (const Input& input : inputs()) {
    if (input.value.defined()) line(base::format("{} = {}", typed(input.value), input.source));
  }
  const SymbolTable& symbols = *graph_.symbols;
  for (size_t s = 0; s < symbols.backed_symbols(); ++s) line(base::format("s{} = sizes[{}]", s, s));
  for (size_t s = 0; graph_.unbacked.empty() && s < symbols.unbacked_symbols(); ++s)
    line(base::format("u{} = sizes[{}]", s, symbols.backed_symbols() + s));
  for (size_t s = 0; s < symbols.float_symbols(); ++s) line(base::format("f{} = scalars[{}]", s, s));
  std::optional<uint32_t> origin;
  for (const Instr& instr : graph_.instrs) {
    if (instr.kind == InstrKind::Event && name_of(instr).empty()) continue;
    if (instr.origin != origin && instr.origin < graph_.origins.size()) line("\n         # " + label_of_origin(instr.origin));
    origin = instr.origin;
    print(instr);
  }
  if (const std::string last = tail(); !last.empty()) line(last);
  line(base::format("return [{}]", join(results(), [&](ValueId value) { return name(value); })));
  if (!symbols.relations().empty())
    out_ << "    # guards: " << join(symbols.relations(), [&](const Relation& r) { return symbols.describe(r); }) << "\n";
  return out_.str();
}

void Printer::print(const Instr& instr) {
  const std::string right = right_side(instr);
  if (right.empty()) return;
  if (instr.kind == InstrKind::Event && instr.outputs.empty()) return line(base::format("{} = {}", name_of(instr), right));
  line(base::format("{} = {}", join(instr.outputs, [&](ValueId value) { return typed(value); }), right));
  for (size_t s = 0; s < graph_.unbacked.size(); ++s) {
    const auto& [value, dim] = graph_.unbacked[s];
    if (std::find(instr.outputs.begin(), instr.outputs.end(), value) != instr.outputs.end())
      line(base::format("u{} = {}.size({})", s, name(value), dim));
  }
}

std::string Printer::right_side(const Instr& instr) const {
  switch (instr.kind) {
    case InstrKind::Op:
      return base::format("{}({})", op_name(*instr.op), arguments(instr.args));
    case InstrKind::Mutate: {
      std::string target = base::format("clone({})", name(instr.base));
      for (const ViewStep& view : instr.views)
        target += "." + std::string(view.op.operator_name().name.substr(6)) + "(" + arguments(view.args, view.self_arg) + ")";
      return base::format("{}({}; {})", op_name(*instr.op), target, arguments(instr.args, instr.target_arg));
    }
    case InstrKind::AddGrads:
      return base::format("torch.ops.aten.add.Tensor({})", list(instr.inputs));
    case InstrKind::Event:
      return text_of(instr, list(instr.inputs));
  }
  return {};
}

std::string Printer::arguments(const std::vector<Arg>& args, uint32_t skipped) const {
  std::string text;
  for (uint32_t i = 0; i < args.size(); ++i) {
    if (i == skipped) continue;
    if (!text.empty()) text += ", ";
    text += argument(args[i]);
  }
  return text;
}

std::string Printer::argument(const Arg& arg) const {
  const auto expressions = [&] { return join(arg.exprs, [&](ExprId e) { return graph_.symbols->str(e); }); };
  switch (arg.kind) {
    case Arg::Kind::Value:
      return list(arg.values);
    case Arg::Kind::ValueList:
    case Arg::Kind::OptionalValueList:
      return "[" + list(arg.values) + "]";
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

// ---- the picture

std::string Printer::dot() {
  name_values();
  makers_.resize(graph_.values.size());
  out_ << "digraph backward {\n  node [shape=box, fontname=monospace, fontsize=10];\n";
  draw_inputs();
  for (uint32_t i = 0; i < graph_.instrs.size(); ++i) draw(i);
  out_ << "}\n";
  return out_.str();
}

void Printer::draw_inputs() {
  for (const Input& input : inputs()) {
    if (!input.value.defined()) continue;
    const std::string& named = makers_[input.value.index] = name(input.value);
    out_ << "  \"" << named << "\" [label=\"" << named << "\\n" << type(input.value) << "\", style=filled, fillcolor=lightgrey];\n";
  }
}

void Printer::draw(uint32_t i) {
  const Instr& instr = graph_.instrs[i];
  const bool is_event = instr.kind == InstrKind::Event;
  if (is_event && (name_of(instr).empty() || text_of(instr, "").empty())) return;
  const std::string id = "i" + std::to_string(i);
  std::string label = base_name(instr);
  if (instr.origin < graph_.origins.size()) label += "\\n" + label_of_origin(instr.origin);
  for (const ValueId value : instr.outputs) {
    makers_[value.index] = id;
    label += "\\n" + name(value) + ": " + type(value);
  }
  out_ << "  " << id << " [label=\"" << label << "\"" << (is_event ? ", style=filled, fillcolor=" + colour_of(instr) : "") << "];\n";
  const auto edge = [&](ValueId value) {
    if (value.defined()) out_ << "  \"" << makers_[value.index] << "\" -> " << id << ";\n";
  };
  for (const Arg& arg : instr.args) std::for_each(arg.values.begin(), arg.values.end(), edge);
  std::for_each(instr.inputs.begin(), instr.inputs.end(), edge);
  edge(instr.base);
}

std::string Graph::print() const { return Printer(*this).text(); }
std::string Graph::dot() const { return Printer(*this).dot(); }
std::vector<std::string> Graph::value_names() const { return Printer(*this).names(); }

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
