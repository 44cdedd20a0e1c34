#include "tests/fuzz/interpret.h"

#include <optional>

#include "tests/fuzz/ops.h"

namespace hindcast::tests::fuzz {
namespace {

// Keep the order of events as print_cpp.cpp writes it: printed_example.inc is checked against both.
class Interpreter {
 public:
  explicit Interpreter(const Program& program) : program_(program), values_(program.types.size()) {}

  Observed run() {
    at::manual_seed(program_.seed);
    make_leaves(/*lasting=*/true, Step{});
    for (const Step& step : program_.steps) {
      log_.note("step " + std::to_string(step.number));
      ++observed_.steps;
      if (!log_.attempt("step", [&] { run_step(step); })) ++observed_.broken_steps;
    }
    observed_.events = log_.events();
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
    for (const Instr& instr : program_.instrs) {
      if (happens(instr.when, step)) run_instr(instr, step);
    }
    if (autocast) autocast->end();
    for (size_t index = 0; index < program_.calls.size(); ++index) {
      if (happens(program_.calls[index].when, step)) run_call(program_.calls[index], index);
    }
    if (!program_.descend) return;
    for (const Leaf& leaf : program_.leaves) {
      if (leaf.lasting && leaf.requires_grad) fuzz::descend(values_[leaf.value]);
    }
  }

  const at::Tensor& operand(int value) const { return value < 0 ? none_ : values_[value]; }

  void run_instr(const Instr& instr, const Step& step) {
    const std::string name = "v" + std::to_string(instr.a);
    const std::vector<int64_t> sizes = sizes_of(instr.sizes, step);
    const double scalar = instr.scalar_changes ? instr.scalar * step.scalar : instr.scalar;
    const Results results = op(instr.op).run(
        {operand(instr.a), operand(instr.b), operand(instr.c), instr.i, instr.j, instr.k, scalar, step.number, sizes, log_, name});
    for (int r = 0; r < instr.results; ++r) values_[instr.first_result + r] = results.at(r);
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

  const Program& program_;
  const at::Tensor none_;
  Log log_;
  std::vector<at::Tensor> values_;
  Observed observed_;
};

}  // namespace

Observed interpret(const Program& program) { return Interpreter(program).run(); }

}  // namespace hindcast::tests::fuzz
