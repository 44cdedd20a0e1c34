#include "tests/whole/fuzz/interpret.h"

#include <optional>

#include "tests/whole/fuzz/function_runtime.h"
#include "tests/whole/fuzz/functions.h"
#include "tests/whole/fuzz/ops.h"

namespace hindcast::tests::fuzz {
namespace {

// Keep the order of events as print_cpp.cpp writes it: printed_example.inc is checked against both.
class Interpreter {
 public:
  Interpreter(const Program& program, const std::optional<AotOptions>& compiled)
      : program_(program), parts_(functions_of(program)), values_(program.types.size()) {
    for (const FunctionPart& part : parts_) {
      functions_.emplace_back([&part, this](const variable_list& in, const Step& step) { return run_body(part, in, step); }, compiled,
                              program_.functions.rehearsed);
    }
  }

  Observed run() {
    at::manual_seed(program_.seed);
    make_leaves(/*lasting=*/true, Step{});
    for (const Step& step : program_.steps) {
      log_.note("step " + std::to_string(step.number));
      ++observed_.steps;
      if (!log_.attempt("step", [&] { run_step(step); })) ++observed_.broken_steps;
    }
    observed_.events = log_.events();
    observed_.log = log_;
    for (const StepFunction& function : functions_) add(function.stats());
    return std::move(observed_);
  }

 private:
  void make_leaves(bool lasting, const Step& step) {
    for (const Leaf& leaf : program_.leaves) {
      if (leaf.lasting != lasting) continue;
      const Type& type = program_.types[leaf.value];
      values_[leaf.value] = fuzz::leaf(sizes_of(type.shape, step), type.dtype, leaf.layout, leaf.requires_grad);
    }
  }

  void run_step(const Step& step) {
    for (const Leaf& leaf : program_.leaves) {
      if (leaf.lasting && leaf.requires_grad && program_.zero_grads != ZeroGrads::Not) {
        zero_grad(values_[leaf.value], program_.zero_grads == ZeroGrads::SetToNone);
      }
    }
    make_leaves(/*lasting=*/false, step);
    std::optional<Autocast> autocast;
    if (program_.autocast) autocast.emplace(true);
    run_instrs(step);
    if (autocast) autocast->end();
    for (size_t index = 0; index < program_.calls.size(); ++index) {
      if (happens(program_.calls[index].when, step)) run_call(program_.calls[index], index);
    }
    if (!program_.descend) return;
    for (const Leaf& leaf : program_.leaves) {
      if (leaf.lasting && leaf.requires_grad) fuzz::descend(values_[leaf.value]);
    }
  }

  void run_instrs(const Step& step) {
    auto part = parts_.begin();
    for (size_t index = 0; index < program_.instrs.size(); ++index) {
      if (part == parts_.end() || index < part->first) {
        run_instr(program_.instrs[index], step, values_);
        continue;
      }
      run_function(static_cast<size_t>(part - parts_.begin()), step);
      index = part++->last - 1;
    }
  }

  void run_function(size_t number, const Step& step) {
    const FunctionPart& part = parts_[number];
    variable_list in;
    for (const int value : part.arguments) in.push_back(values_[value]);
    const variable_list out = functions_[number](log_, "made by function " + std::to_string(number), in, step_inside(part, step));
    for (size_t r = 0; r < part.results.size(); ++r) {
      values_[part.results[r]] = out.at(r);
      log_.show("made v" + std::to_string(part.results[r]), out[r]);
    }
    if (part.writes) log_.show("made of arguments", in);
  }

  variable_list run_body(const FunctionPart& part, const variable_list& in, Step step) {
    std::vector<at::Tensor> values(values_.size());
    for (size_t a = 0; a < in.size(); ++a) values[part.arguments[a]] = in[a];
    for (const int value : part.outside) values[value] = values_[value];
    if (part.batch && part.batch_argument >= 0) step.batch = in[part.batch_argument].size(part.batch_dim) / part.batch_factor;
    for (size_t index = part.first; index < part.last; ++index) run_instr(program_.instrs[index], step, values);
    variable_list out;
    for (const int value : part.results) out.push_back(values[value]);
    return out;
  }

  void run_instr(const Instr& instr, const Step& step, std::vector<at::Tensor>& values) {
    if (!happens(instr.when, step)) return;
    const auto operand = [&](int value) -> const at::Tensor& { return value < 0 ? none_ : values[value]; };
    const std::string name = "v" + std::to_string(instr.a);
    const std::vector<int64_t> sizes = sizes_of(instr.sizes, step);
    const double scalar = instr.scalar_changes ? instr.scalar * step.scalar : instr.scalar;
    const Results results = op(instr.op).run(
        {operand(instr.a), operand(instr.b), operand(instr.c), instr.i, instr.j, instr.k, scalar, step.number, sizes, log_, name});
    for (int r = 0; r < instr.results; ++r) values[instr.first_result + r] = results.at(r);
  }

  void run_call(const Call& call, size_t index) {
    const std::string name = "call " + std::to_string(index);
    ++observed_.calls;
    variable_list inputs;
    for (const int value : call.inputs) inputs.push_back(values_[value]);
    const bool ok = log_.attempt(name, [&] {
      variable_list roots, gradients;
      for (const Root& root : call.roots) {
        roots.push_back(values_[root.value]);
        gradients.push_back(root.gradient ? gradient(values_[root.value], *root.gradient) : at::Tensor());
      }
      switch (call.kind) {
        case Call::Kind::Backward:
          torch::autograd::backward(roots, gradients, call.retain_graph, call.create_graph, inputs);
          break;
        case Call::Kind::Grad:
          log_.show(name, torch::autograd::grad(roots, inputs, gradients, call.retain_graph, call.create_graph, call.allow_unused));
          break;
        case Call::Kind::SquaredGradients:
          backward_of_squared_gradients(roots, gradients, inputs);
          break;
      }
    });
    if (!ok) ++observed_.throwing_calls;
    for (const int value : values_with_grads(program_)) log_.show_grad("v" + std::to_string(value), values_[value]);
  }

  void add(const AotStats& stats) {
    AotStats& sum = observed_.functions;
    sum.calls += stats.calls, sum.hits += stats.hits, sum.traces += stats.traces, sum.eager += stats.eager;
    sum.backwards += stats.backwards;
  }

  const Program& program_;
  const std::vector<FunctionPart> parts_;
  const at::Tensor none_;
  Log log_;
  std::vector<StepFunction> functions_;
  std::vector<at::Tensor> values_;
  Observed observed_;
};

}  // namespace

Observed interpret(const Program& program, const std::optional<AotOptions>& compiled) { return Interpreter(program, compiled).run(); }

}  // namespace hindcast::tests::fuzz
