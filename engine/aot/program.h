#pragma once
// One program of a function, ready to run: by a plan that work in the background replaces, or by what the user's compiler made.

#include "engine/aot/aot_options.h"
#include "engine/plan_slot.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace hindcast::engine {

/// Inputs for a compiler of the user's to look at; asked only if there is one.
using ExampleInputs = std::function<std::vector<at::Tensor>()>;

/// What a compiler of the user's made. Its sizes may be symbols.
using CompiledProgram = std::function<std::vector<at::Tensor>(std::vector<at::Tensor> inputs, const capture::Bindings& bindings)>;

class Program {
 public:
  enum class Way : uint8_t { Best, AsCaptured };  // the latter: op by op through ATen

  /// `own_outputs`: LowerRequest's.
  Program(std::shared_ptr<const capture::Graph> graph, const ProgramCompiler& compiler, bool in_background, const ExampleInputs& examples,
          std::vector<uint32_t> own_outputs = {});

  /// Outputs from inputs, in the graph's order, below autograd. Two outputs are one tensor where the plan has one for both.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, const capture::Bindings& bindings, Way way = Way::Best) const;
  /// The same, and appends sizes that depend on data to `bindings` as they become known. Nullopt: the program is not for one of them.
  std::optional<std::vector<at::Tensor>> run_and_bind(std::vector<at::Tensor> inputs, capture::Bindings& bindings) const;
  /// What runs it now.
  std::shared_ptr<const codegen::Plan> plan() const { return slot_->plan(); }
  /// False: what the user's compiler made runs it.
  bool has_plan() const { return !compiled_; }
  std::shared_ptr<const capture::Graph> graph() const { return slot_->graph(); }
  /// What goes with the program, in bytes: counted with it in Stats::kept_bytes.
  void add_owners_bytes(size_t bytes) const { slot_->add_owners_bytes(bytes); }
  /// What the graph's relations say of these values of its symbols, as far as they are bound.
  bool holds_for(const capture::Bindings& bindings) const;

 private:
  std::vector<at::Tensor> run_compiled(std::vector<at::Tensor> inputs, const capture::Bindings& bindings) const;

  const std::shared_ptr<PlanSlot> slot_;
  const capture::Evaluator relations_;
  CompiledProgram compiled_;
};

}  // namespace hindcast::engine
