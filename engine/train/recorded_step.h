#pragma once
// Whole training steps as CUDA graphs: loss, gradients, norm and updates are one launch.
//
// A CUDA graph contains the addresses of parameters, buffers and optimizer state, and is dropped when one of them changes. The batch is
// copied into the CUDA graph's own memory. What changes from step to step in the updates, such as the learning rate and the step count,
// is computed by the optimizer's own rules in each step, and replaces the captured kernels' arguments.

#include "engine/optim/step_parts.h"
#include "hindcast/detail/aot_core.h"

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hindcast::codegen {
class Backend;
class Recording;
}  // namespace hindcast::codegen

namespace hindcast::engine {

struct StepByParts {
  const detail::FunctionCall& call;  // its function returns the results, then a gradient for each of `trained`
  detail::AotCore& gradients;
  const std::vector<at::Tensor>& trained;
  c10::function_ref<detail::FunctionOutput(const detail::FunctionCall& call)> run;  // the whole step; leaves the gradients in `.grad()`
  c10::function_ref<std::vector<at::Tensor>(const detail::AotHit& hit)> updated;  // those of `trained` that get a gradient from the program
};

/// Not thread-safe.
class RecordedSteps {
 public:
  /// `update` makes the updates of all steps, and must outlive this object.
  RecordedSteps(detail::StepParts& update, size_t most_bytes);
  ~RecordedSteps();
  RecordedSteps(const RecordedSteps&) = delete;
  RecordedSteps& operator=(const RecordedSteps&) = delete;

  /// Returns nullopt, before any effect, if the caller must run the step without a CUDA graph.
  std::optional<detail::FunctionOutput> run(const StepByParts& step);
  void forget();

  uint64_t launches() const { return launches_; }
  size_t bytes() const;
  /// Why the last step that ran without a CUDA graph did so.
  const std::string& why_not() const { return why_not_; }

 private:
  struct One;
  One& find_or_watch(const StepByParts& step, const detail::AotHit& hit);
  bool record(const StepByParts& step, One& one, const detail::AotHit& hit);
  bool capture(const StepByParts& step, One& one, const codegen::Backend& backend);
  static bool shares_results(const One& one, const detail::AotHit& hit);
  bool renew_updates(const StepByParts& step, One& one);
  detail::FunctionOutput launch(const StepByParts& step, One& one, const detail::AotHit& hit);
  std::nullopt_t give_up(std::string why, const std::string& detail = {});

  void forget(One& one);
  bool drop_idle();
  bool has_room();

  detail::StepParts& update_;
  const size_t most_bytes_;
  std::list<std::unique_ptr<One>> all_;  // most recently used first
  std::string why_not_;
  uint64_t launches_ = 0, runs_ = 0;
};

}  // namespace hindcast::engine
