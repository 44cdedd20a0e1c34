#include "engine/aot/program.h"

#include "base/first_line.h"
#include "base/format.h"
#include "base/log.h"
#include "codegen/plan/execute.h"
#include "codegen/plan/prepared_run.h"
#include "engine/compile/compile_queue.h"
#include "engine/compile/graph_compiler.h"
#include "engine/counters/stats_recorder.h"
#include "engine/diagnosis/step_times.h"
#include "engine/options/use_options.h"

#include <stdexcept>

namespace hindcast::engine {
namespace {

// Adapts a segment function, which takes what its segment reads and returns what others read, to the program's inputs and outputs.
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

// One run of a plan.
class PlanRun {
 public:
  PlanRun(const codegen::Plan& plan, std::vector<at::Tensor> inputs, const capture::Bindings& bindings)
      : plan_(plan), bindings_(bindings), slots_(plan.slot_count()) {
    if (!plan.evaluator().evaluate(bindings, env_))
      throw std::invalid_argument("hindcast: the sizes that a program was given are negative, or too large for it");
    const auto& graph = plan.graph();
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const uint32_t slot = plan.slot_of(graph.inputs[i]);
      if (slot != codegen::kNoSlot) slots_[slot] = std::move(inputs[i]);
    }
    if (StepClock::is_wanted_for(plan)) [[unlikely]]
      timed_.emplace(plan, slots_);
  }

  void run_up_to(uint32_t step) { done_ = codegen::execute(plan_, done_, step, slots_, env_, timed_ ? &*timed_ : nullptr); }

  /// Binds a data-dependent size. Returns false if the trace's relations do not hold for it.
  bool bind(const codegen::SizeToBind& size, capture::Bindings& bindings) {
    bindings.ints.push_back(slots_[size.slot].size(size.dim));
    return plan_.evaluator().evaluate(bindings, env_) && plan_.evaluator().relations_hold(env_);
  }

  std::vector<at::Tensor> end() {
    const bool is_whole = done_ == 0 && !timed_;
    if (!is_whole || !plan_.prepared_runs().run(plan_, slots_, env_, bindings_.ints))
      run_up_to(static_cast<uint32_t>(plan_.steps().size()));
    if (timed_) timed_->end();
    const auto& graph = plan_.graph();
    std::vector<at::Tensor> outputs;
    outputs.reserve(graph.outputs.size());
    for (const capture::ValueId value : graph.outputs) {
      const uint32_t slot = plan_.slot_of(value);
      outputs.push_back(slot == codegen::kNoSlot ? at::Tensor() : slots_[slot]);
    }
    return outputs;
  }

 private:
  const codegen::Plan& plan_;
  const capture::Bindings& bindings_;
  codegen::Slots slots_;
  capture::Env env_;
  std::optional<TimedSteps> timed_;
  uint32_t done_ = 0;
};

// A program of the user's compiler runs as a whole, so sizes cannot be bound in the middle of it.
bool binds_nothing(const capture::Graph& graph) {
  if (!graph.unbacked.empty()) HC_LOG(Aot, Info, "ATen runs graph {} instead of the compiled program: sizes depend on data", graph.id);
  return graph.unbacked.empty();
}

CompiledProgram compile_for_user(const ProgramCompiler& compiler, const std::shared_ptr<const capture::Graph>& graph,
                                 const ExampleInputs& examples) {
  try {
    if (compiler.function()) {
      ProgramFunction function = compiler.function()(graph, examples());
      if (!function || !binds_nothing(*graph)) return {};
      return [function = std::move(function)](std::vector<at::Tensor> inputs, const capture::Bindings&) {
        return function(std::move(inputs));
      };
    }
    if (!compiler.compiler() || replay_of(compiler.compiler()) != Replay::Compiled || graph->segments().size() != 1) return {};
    Options options;
    options.compiler = compiler.compiler();
    auto functions = compile_segments(options, graph);
    if (functions.size() == 1 && functions[0] && binds_nothing(*graph)) return of_segment(std::move(functions[0]), graph);
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
  if (replay == Replay::Eager || replay == Replay::Compiled || graph->bitwise) return;
  LowerRequest request{.through_aten = replay == Replay::GroupsThroughAten, .own_outputs = std::move(own_outputs)};
  compile({.slot = slot_, .what = std::move(request), .shares = true}, in_background);
}

bool Program::holds_for(const capture::Bindings& bindings) const {
  capture::Env env;
  return relations_.evaluate(bindings, env) && relations_.relations_hold(env);
}

std::vector<at::Tensor> Program::run(std::vector<at::Tensor> inputs, const capture::Bindings& bindings, Way way) const {
  const codegen::BelowAutograd below;
  if (compiled_) return run_compiled(std::move(inputs), bindings);
  const auto plan = way == Way::Best ? slot_->plan() : slot_->plan_as_captured();
  return PlanRun(*plan, std::move(inputs), bindings).end();
}

std::optional<std::vector<at::Tensor>> Program::run_and_bind(std::vector<at::Tensor> inputs, capture::Bindings& bindings) const {
  const codegen::BelowAutograd below;
  if (compiled_) return run_compiled(std::move(inputs), bindings);
  const auto plan = slot_->plan();
  PlanRun run(*plan, std::move(inputs), bindings);
  for (const codegen::SizeToBind& size : plan->sizes_to_bind()) {
    run.run_up_to(size.step + 1);
    if (!run.bind(size, bindings)) return std::nullopt;
  }
  return run.end();
}

std::vector<at::Tensor> Program::run_compiled(std::vector<at::Tensor> inputs, const capture::Bindings& bindings) const {
  std::vector<at::Tensor> outputs = compiled_(std::move(inputs), bindings);
  const size_t expected = slot_->graph()->outputs.size();
  if (outputs.size() != expected) {
    throw std::invalid_argument(base::format("hindcast: a compiled program returned {} tensors, expected {}", outputs.size(), expected));
  }
  return outputs;
}

}  // namespace hindcast::engine
