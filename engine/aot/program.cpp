#include "engine/aot/program.h"

#include "base/first_line.h"
#include "base/format.h"
#include "base/log.h"
#include "codegen/plan/execute.h"
#include "engine/compile_queue.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/step_times.h"
#include "engine/graph_compiler.h"
#include "engine/use_options.h"

#include <stdexcept>

namespace hindcast::engine {
namespace {

// A segment function takes what its segment reads, and gives what others read of it.
CompiledProgram of_segment(SegmentFunction function, const std::shared_ptr<const capture::Graph>& graph) {
  const capture::Segment segment = graph->segments().at(0);
  return [function = std::move(function), graph, segment](const std::vector<at::Tensor>& inputs, const capture::Bindings& bindings) {
    const auto place = [](const std::vector<capture::ValueId>& list, capture::ValueId value) {
      return static_cast<size_t>(std::find(list.begin(), list.end(), value) - list.begin());
    };
    std::vector<at::Tensor> read;
    for (const capture::ValueId value : segment.inputs) read.push_back(inputs.at(place(graph->inputs, value)));
    const auto made = function(std::move(read), bindings);
    std::vector<at::Tensor> outputs;
    for (const capture::ValueId value : graph->outputs) {
      const size_t of_segment = place(segment.outputs, value), of_input = place(graph->inputs, value);
      if (of_segment < segment.outputs.size()) {
        outputs.push_back(made.at(of_segment));
      } else {
        outputs.push_back(of_input < inputs.size() ? inputs[of_input] : at::Tensor());
      }
    }
    return outputs;
  };
}

std::vector<at::Tensor> run_plan(const codegen::Plan& plan, std::vector<at::Tensor> inputs, const capture::Bindings& bindings) {
  capture::Env env;
  if (!plan.evaluator().evaluate(bindings, env)) throw std::invalid_argument("hindcast: a program was given sizes that are none");
  codegen::Slots slots(plan.slot_count());
  const auto& graph = plan.graph();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const uint32_t slot = plan.slot_of(graph.inputs[i]);
    if (slot != codegen::kNoSlot) slots[slot] = std::move(inputs[i]);
  }
  if (StepClock::is_wanted_for(plan)) [[unlikely]] {
    TimedSteps timed(plan, slots);
    codegen::execute(plan, 0, slots, env, &timed);
    timed.end();
  } else {
    codegen::execute(plan, 0, slots, env);
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(graph.outputs.size());
  for (const capture::ValueId value : graph.outputs) {
    const uint32_t slot = plan.slot_of(value);
    outputs.push_back(slot == codegen::kNoSlot ? at::Tensor() : slots[slot]);
  }
  return outputs;
}

CompiledProgram compile_for_user(const ProgramCompiler& compiler, const std::shared_ptr<const capture::Graph>& graph,
                                 const ExampleInputs& examples) {
  try {
    if (compiler.function()) {
      ProgramFunction function = compiler.function()(graph, examples());
      if (!function) return {};
      return [function = std::move(function)](std::vector<at::Tensor> inputs, const capture::Bindings&) {
        return function(std::move(inputs));
      };
    }
    if (!compiler.compiler() || replay_of(compiler.compiler()) != Replay::Compiled || graph->segments().size() != 1) return {};
    Options options;
    options.compiler = compiler.compiler();
    auto functions = compile_segments(options, graph);
    if (functions.size() == 1 && functions[0]) return of_segment(std::move(functions[0]), graph);
  } catch (const std::exception& error) {
    stats_recorder().add_compiler_failure();
    HC_LOG(Aot, Warning, "the program compiler failed on graph {}: {}; ATen runs it", graph->id, base::first_line(error));
  }
  return {};
}

}  // namespace

Program::Program(std::shared_ptr<const capture::Graph> graph, const ProgramCompiler& compiler, bool in_background,
                 const ExampleInputs& examples, std::vector<uint32_t> own_outputs)
    : slot_(std::make_shared<PlanSlot>(graph)),
      relations_(slot_->plan()->evaluator()),
      compiled_(compile_for_user(compiler, graph, examples)) {
  if (compiled_ || compiler.function()) return;
  const Replay replay = replay_of(compiler.compiler() ? compiler.compiler() : default_compiler());
  if (replay == Replay::Eager || replay == Replay::Compiled || graph->strict) return;
  LowerRequest request{.through_aten = replay == Replay::GroupsThroughAten, .own_outputs = std::move(own_outputs)};
  compile({.slot = slot_, .what = std::move(request), .shares = true}, in_background);
}

bool Program::holds_for(const capture::Bindings& bindings) const {
  capture::Env env;
  return relations_.evaluate(bindings, env) && relations_.relations_hold(env);
}

std::vector<at::Tensor> Program::run(std::vector<at::Tensor> inputs, const capture::Bindings& bindings, Way way) const {
  const codegen::BelowAutograd below;
  if (!compiled_) {
    const auto plan = way == Way::Best ? slot_->plan() : slot_->plan_as_captured();
    return run_plan(*plan, std::move(inputs), bindings);
  }
  std::vector<at::Tensor> outputs = compiled_(std::move(inputs), bindings);
  const size_t expected = slot_->graph()->outputs.size();
  if (outputs.size() != expected) {
    throw std::invalid_argument(base::format("hindcast: a compiled program returned {} tensors, expected {}", outputs.size(), expected));
  }
  return outputs;
}

}  // namespace hindcast::engine
