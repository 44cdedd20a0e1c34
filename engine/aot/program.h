#pragma once
// One executable program of a function: run by a plan, which the background compiler replaces by a better one, or by the user's compiler.

#include "engine/plan/plan_slot.h"
#include "hindcast/aot_options.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Example inputs for the user's compiler; called only if there is one.
using ExampleInputs = std::function<std::vector<at::Tensor>()>;

/// The function returned by the user's compiler. Its sizes may be symbols.
using CompiledProgram = std::function<std::vector<at::Tensor>(std::vector<at::Tensor> inputs, const capture::Bindings& bindings)>;

class Program {
 public:
  enum class Way : uint8_t { Best, AsCaptured };  // the latter: op by op through ATen

  /// `own_outputs`: see LowerRequest.
  Program(std::shared_ptr<const capture::Graph> graph, const ProgramCompiler& compiler, bool in_background, const ExampleInputs& examples,
          std::vector<uint32_t> own_outputs = {});

  /// Computes the outputs from the inputs, in the graph's order, below autograd. Two outputs may be the same tensor.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const capture::Bindings& bindings, Way way = Way::Best) const;
  /// The same; also appends data-dependent sizes to `bindings` as they become known. Returns nullopt if the program does not hold for one.
  std::optional<std::vector<at::Tensor>> run_and_bind(std::vector<at::Tensor> inputs, capture::Bindings& bindings) const;
  /// The best plan so far.
  std::shared_ptr<const codegen::Plan> plan() const { return slot_->plan(); }
  /// False if the user's compiler made the program.
  bool has_plan() const { return !compiled_; }
  std::shared_ptr<const capture::Graph> graph() const { return slot_->graph(); }
  /// Counts bytes that are freed together with the program in Stats::kept_bytes.
  void add_owners_bytes(size_t bytes) const { slot_->add_owners_bytes(bytes); }
  /// True if the graph's relations hold for these values of its symbols, as far as they are bound.
  bool holds_for(const capture::Bindings& bindings) const;

 private:
  std::vector<at::Tensor> run_compiled(std::vector<at::Tensor> inputs, const capture::Bindings& bindings) const;

  const std::shared_ptr<PlanSlot> slot_;
  const capture::Evaluator relations_;
  CompiledProgram compiled_;
};

}  // namespace hindcast::engine
