#include "tests/whole/fuzz/print_cpp.h"

#include <cctype>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>

#include "tests/whole/fuzz/functions.h"
#include "tests/whole/fuzz/ops.h"

namespace hindcast::tests::fuzz {
namespace {

std::string v(int value) { return "v" + std::to_string(value); }

std::string literal(double value) {
  std::ostringstream out;
  out.precision(std::numeric_limits<double>::max_digits10);
  out << value;
  const std::string text = out.str();
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;  // an int would choose other overloads
}

const char* literal(bool value) { return value ? "true" : "false"; }

std::string layout_name(Layout layout) {
  switch (layout) {
    case Layout::Transposed:
      return "Layout::Transposed";
    case Layout::Sliced:
      return "Layout::Sliced";
    case Layout::Expanded:
      return "Layout::Expanded";
    case Layout::Contiguous:
      break;
  }
  return "Layout::Contiguous";
}

std::string sizes_text(const Shape& shape) {
  std::string text = "std::vector<int64_t>{";
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) text += ", ";
    if (!shape[d].batch) {
      text += std::to_string(shape[d].factor);
    } else {
      text += shape[d].factor == 1 ? "step.batch" : std::to_string(shape[d].factor) + " * step.batch";
    }
  }
  return text + "}";
}

std::string condition(When when) {
  switch (when) {
    case When::FirstStep:
      return "if (step.number == 0) ";
    case When::OddSteps:
      return "if (step.number % 2 == 1) ";
    case When::Always:
      break;
  }
  return "";
}

std::string word(const std::string& name, const Instr& instr) {
  if (name == "a") return v(instr.a);
  if (name == "b") return v(instr.b);
  if (name == "c") return v(instr.c);
  if (name == "i") return std::to_string(instr.i);
  if (name == "j") return std::to_string(instr.j);
  if (name == "k") return std::to_string(instr.k);
  if (name == "s") return instr.scalar_changes ? "(" + literal(instr.scalar) + " * step.scalar)" : literal(instr.scalar);
  if (name == "n") return "step.number";
  if (name == "sizes") return sizes_text(instr.sizes);
  if (name == "name") return "\"" + v(instr.a) + "\"";
  return name;
}

/// The row's expression with the program's names in it.
std::string expression(const Instr& instr) {
  const std::string text = op(instr.op).text;
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto is_word = [&](size_t p) { return p < text.size() && (std::isalnum(static_cast<unsigned char>(text[p])) || text[p] == '_'); };
    if (!is_word(at)) {
      result += text[at++];
      continue;
    }
    size_t end = at;
    while (is_word(end)) ++end;
    const std::string name = text.substr(at, end - at);
    const bool member = at > 0 && (text[at - 1] == '.' || text[at - 1] == ':');
    result += member ? name : word(name, instr);
    at = end;
  }
  return result;
}

std::string values_list(const std::vector<int>& values) {
  std::string text = "variable_list{";
  for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? ", " : "") + v(values[i]);
  return text + "}";
}

class Writer {
 public:
  explicit Writer(const Program& program) : program_(program), parts_(functions_of(program)) {}

  std::string program() {
    out_ << "void program(Log& log" << (parts_.empty() ? "" : ", const std::optional<hindcast::AotOptions>& compiled")
         << ") {\n  at::manual_seed(" << program_.seed << ");\n";
    for (const Leaf& leaf : program_.leaves) {
      if (leaf.lasting) out_ << "  " << definition(leaf);
    }
    for (size_t number = 0; number < parts_.size(); ++number) write(parts_[number], number);
    out_ << "  for (const Step& step : {";
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      out_ << (i > 0 ? ", " : "") << "Step{" << step.number << ", " << step.batch << ", " << literal(step.scalar) << "}";
    }
    out_ << "}) {\n    log.note(\"step \" + std::to_string(step.number));\n    log.attempt(\"step\", [&] {\n";
    step();
    out_ << "    });\n  }\n}\n";
    return out_.str();
  }

 private:
  std::string definition(const Leaf& leaf) const {
    const Type& type = program_.types[leaf.value];
    return "at::Tensor " + v(leaf.value) + " = leaf(" + sizes_text(type.shape) + ", at::k" + c10::toString(type.dtype) + ", " +
           layout_name(leaf.layout) + ", /*requires_grad=*/" + literal(leaf.requires_grad) + ");\n";
  }

  void line(const std::string& text) { out_ << "      " << text << "\n"; }

  void write(const FunctionPart& part, size_t number) {
    out_ << "  const StepFunction function" << number << "([&](const variable_list& in, [[maybe_unused]] Step step) -> variable_list {\n";
    for (size_t a = 0; a < part.arguments.size(); ++a) line("at::Tensor " + v(part.arguments[a]) + " = in.at(" + std::to_string(a) + ");");
    if (part.batch && part.batch_argument >= 0) {
      line("step.batch = " + v(part.arguments[part.batch_argument]) + ".size(" + std::to_string(part.batch_dim) + ") / " +
           std::to_string(part.batch_factor) + ";");
    }
    for (size_t index = part.first; index < part.last; ++index) write(program_.instrs[index]);
    line("return " + values_list(part.results) + ";");
    out_ << "  }, compiled, /*rehearsed=*/" << literal(program_.functions.rehearsed) << ");\n";
  }

  void write_call(const FunctionPart& part, size_t number) {
    const std::string n = std::to_string(number);
    line("const variable_list in" + n + " = " + values_list(part.arguments) + ";");
    line("const variable_list out" + n + " = function" + n + "(log, \"made by function " + n + "\", in" + n + ", Step{" +
         (part.number ? "kind_of_step(step)" : "0") + ", " + (part.batch && part.batch_argument < 0 ? "step.batch" : "1") + ", " +
         (part.scalar ? "step.scalar" : "1.0") + "});");
    for (size_t r = 0; r < part.results.size(); ++r) {
      const std::string value = v(part.results[r]);
      line("at::Tensor " + value + " = out" + n + ".at(" + std::to_string(r) + ");");
      line("log.show(\"made " + value + "\", " + value + ");");
    }
    if (part.writes) line("log.show(\"made of arguments\", in" + n + ");");
  }

  void write_instrs() {
    auto part = parts_.begin();
    for (size_t index = 0; index < program_.instrs.size(); ++index) {
      if (part == parts_.end() || index < part->first) {
        write(program_.instrs[index]);
        continue;
      }
      write_call(*part, static_cast<size_t>(part - parts_.begin()));
      index = part++->last - 1;
    }
  }

  void for_lasting(const std::string& before, const std::string& after) {
    for (const Leaf& leaf : program_.leaves) {
      if (leaf.lasting && leaf.requires_grad) line(before + v(leaf.value) + after);
    }
  }

  void step() {
    if (program_.zero_grads != ZeroGrads::Not) {
      for_lasting("zero_grad(", std::string(", /*set_to_none=*/") + literal(program_.zero_grads == ZeroGrads::SetToNone) + ");");
    }
    for (const Leaf& leaf : program_.leaves) {
      if (!leaf.lasting) out_ << "      " << definition(leaf);
    }
    if (program_.autocast) line("Autocast autocast(true);");
    write_instrs();
    if (program_.autocast) line("autocast.end();");
    for (size_t index = 0; index < program_.calls.size(); ++index) write(program_.calls[index], index);
    if (program_.descend) for_lasting("descend(", ");");
  }

  void write(const Instr& instr) {
    const Op& row = op(instr.op);
    if (instr.results == 0) {
      line(condition(instr.when) + expression(instr) + ";");
    } else if (!row.many) {
      line("at::Tensor " + v(instr.first_result) + " = " + expression(instr) + ";");
    } else {
      const std::string list = "list" + std::to_string(instr.first_result);
      line("const std::vector<at::Tensor> " + list + " = " + expression(instr) + ";");
      for (int r = 0; r < instr.results; ++r)
        line("at::Tensor " + v(instr.first_result + r) + " = " + list + ".at(" + std::to_string(r) + ");");
    }
  }

  static std::string arguments(const Call& call) {
    std::vector<int> roots;
    std::string gradients = "variable_list{";
    for (const Root& root : call.roots) {
      if (!roots.empty()) gradients += ", ";
      roots.push_back(root.value);
      gradients += root.gradient ? "gradient(" + v(root.value) + ", " + layout_name(*root.gradient) + ")" : "at::Tensor()";
    }
    gradients += "}";
    const std::string flags =
        std::string(", /*retain_graph=*/") + literal(call.retain_graph) + ", /*create_graph=*/" + literal(call.create_graph);
    switch (call.kind) {
      case Call::Kind::Backward:
        return "torch::autograd::backward(" + values_list(roots) + ", " + gradients + flags + ", " + values_list(call.inputs) + ");";
      case Call::Kind::Grad:
        return "torch::autograd::grad(" + values_list(roots) + ", " + values_list(call.inputs) + ", " + gradients + flags +
               ", /*allow_unused=*/" + literal(call.allow_unused) + ")";
      case Call::Kind::SquaredGradients:
        break;
    }
    return "backward_of_squared_gradients(" + values_list(roots) + ", " + gradients + ", " + values_list(call.inputs) + ");";
  }

  void write(const Call& call, size_t index) {
    const std::string name = "\"call " + std::to_string(index) + "\"";
    const bool shown = call.kind == Call::Kind::Grad;
    line(condition(call.when) + "{");
    line("  log.attempt(" + name + ", [&] {");
    line("    " + (shown ? "log.show(" + name + ", " + arguments(call) + ");" : arguments(call)));
    line("  });");
    for (const int value : values_with_grads(program_)) line("  log.show_grad(\"" + v(value) + "\", " + v(value) + ");");
    line("}");
  }

  const Program& program_;
  const std::vector<FunctionPart> parts_;
  std::ostringstream out_;
};

std::string text_of(const std::string& header) {
  const std::string path = HINDCAST_SOURCE_DIR "/tests/whole/fuzz/" + header;
  std::ifstream in(path);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    if (line != "#pragma once" && line.find("#include \"") != 0) text += line + "\n";
  }
  if (text.empty()) throw std::runtime_error("cannot read " + path);
  return text;
}

/// The rest of main(), after `options`.
const char* compare_engines() {
  return R"(  const auto guard = hindcast::enable(options);
  program(ours);
  const std::string difference = first_difference(stock.events(), ours.events());
  std::cout << (difference.empty() ? "the engines agree\n" : difference) << hindcast::report();
  return difference.empty() && hindcast::stats().refused_graphs == 0 ? 0 : 1;
}
)";
}

std::string compare_compiled(const Program& program) {
  const FunctionSettings& settings = program.functions;
  std::ostringstream out;
  out << "  options.enabled = " << literal(settings.guarded) << ";\n"
      << "  hindcast::AotOptions compiled;\n"
      << "  compiled.fw_compiler = compiled.bw_compiler = hindcast::compilers::" << (settings.fused ? "fused_through_aten" : "eager")
      << "();\n"
      << "  compiled.partition = hindcast::partition::" << (settings.min_cut ? "min_cut" : "standard") << ";\n"
      << (settings.saves_little ? "  compiled.memory_budget = 0;\n" : "") << (settings.checked ? "  compiled.check_every = 1;\n" : "")
      << (settings.dynamic ? "" : "  compiled.dynamic = hindcast::Dynamic::Never;\n")
      << "  compiled.fallback_random = true;\n  compiled.async = false;\n"
      << R"(  const auto guard = hindcast::enable(options);
  program(ours, compiled);
  const FunctionDifference difference = compare_functions(stock, ours, {true, true});
  std::cout << (difference.text.empty() ? "both agree\n" : difference.text) << difference.stopped << hindcast::report();
  return difference.text.empty() && hindcast::stats().refused_graphs == 0 ? 0 : 1;
}
)";
  return out.str();
}

}  // namespace

std::string print_program(const Program& program) { return Writer(program).program(); }

std::string print_reproducer(const Program& program) {
  const bool has_functions = !functions_of(program).empty();
  std::ostringstream out;
  out << "// From hindcast's fuzzer, seed " << program.seed << ". Returns 1 if hindcast and the stock engine differ.\n"
      << "// Seen with: HINDCAST_FUZZ_SEEDS=" << program.seed << ":1 test_fuzz\n"
      << text_of("runtime.h") << (has_functions ? text_of("function_runtime.h") : "")
      << "\n#include <iostream>\n\nusing namespace hindcast::tests::fuzz;\n\n"
      << print_program(program) << R"(
int main() {
  at::set_num_threads(1);
  Log stock, ours;
)" << (has_functions ? "  program(stock, std::nullopt);\n" : "  program(stock);\n")
      << "  hindcast::Options options;\n"
      << "  options.verify = " << literal(program.verify) << ";\n"
      << (program.fused ? "  options.compiler = hindcast::compilers::fused_through_aten();\n  options.async = false;\n" : "")
      << (program.seed % 2 == 0 ? "  options.nan_guard = true;\n" : "")
      << "  options.collector = hindcast::Collector::" << (program.visitor ? "Visitor" : "Typed") << ";\n"
      << "  options.dynamic = hindcast::Dynamic::" << (program.dynamic ? "Automatic" : "Never") << ";\n"
      << (has_functions ? compare_compiled(program) : compare_engines());
  return out.str();
}

}  // namespace hindcast::tests::fuzz
