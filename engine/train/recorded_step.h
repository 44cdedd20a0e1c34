#pragma once
// Whole steps as CUDA graphs: loss, gradients, norm and updates are given to the device as one launch.
//
// A recording has addresses in it, those of parameters, buffers and optimizer state, and is thrown away where one lies elsewhere. Batches are
// copied to a place of its own. What changes from step to step in the updates, as the learning rate and the count of steps, is computed anew by
// the optimizer's own rules, and given to the recorded kernels as their new argument.

#include "engine/aot/core.h"
#include "engine/optim/compiled_step.h"
#include "engine/optim/step_parts.h"

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace hindcast::codegen {
class Backend;
class Recording;
}  // namespace hindcast::codegen

namespace hindcast::engine {

/// One step, by its parts.
struct StepByParts {
  const FunctionCall& call;  // gives results, and a gradient for each of `trained` behind them
  AotCore& gradients;
  const std::vector<at::Tensor>& trained;
  c10::function_ref<FunctionOutput(const FunctionCall& call)> run;  // all of it; `.grad()` has the gradients behind it
};

/// Not for several threads at a time.
class RecordedSteps {
 public:
  /// `update` makes the updates of all steps, and outlives it.
  RecordedSteps(CompiledStep& update, size_t most_bytes) : update_(update), most_bytes_(most_bytes) {}
  ~RecordedSteps();
  RecordedSteps(const RecordedSteps&) = delete;
  RecordedSteps& operator=(const RecordedSteps&) = delete;

  /// None: it is to be run by its parts, and nothing has happened.
  std::optional<FunctionOutput> run(const StepByParts& step);
  void forget();

  uint64_t launches() const { return launches_; }
  size_t bytes() const;
  /// The last one's reason.
  const std::string& why_not() const { return why_not_; }

 private:
  struct One;
  One* find_or_watch(const StepByParts& step, AotHit hit);
  bool record(const StepByParts& step, One& one);
  bool capture(const StepByParts& step, One& one, const codegen::Backend& backend);
  static bool shares_results(const One& one);
  bool renew_updates(const StepByParts& step, One& one);
  FunctionOutput launch(const StepByParts& step, One& one);
  void give_up(std::string why);

  void forget(One& one);
  void drop_last();

  CompiledStep& update_;
  const size_t most_bytes_;
  std::list<std::unique_ptr<One>> all_;  // the last one used first
  std::set<std::string> said_;
  std::string why_not_;
  uint64_t launches_ = 0;
};

}  // namespace hindcast::engine
