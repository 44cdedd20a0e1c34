#pragma once
// Measures what each step of each graph costs, while the log `perf` is on (one line per step that computes) or a trace is written.
// report() shows the most expensive steps.

#include "base/log.h"
#include "codegen/kernel/backend.h"
#include "codegen/plan/execute.h"
#include "codegen/plan/plan.h"
#include "engine/diagnosis/trace/run_records.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::engine {

struct StepTime {
  std::string name;  // the op, or the kernel's ops
  uint32_t graph = 0;
  uint64_t calls = 0;
  double us = 0;                              // summed
  double bytes = 0;                           // read and written, summed; a broadcast tensor counts once
  const codegen::Backend* backend = nullptr;  // the graph's, if it has one
};

/// Measures the steps of one run, one after the other.
class StepClock {
 public:
  /// True if the times are wanted. One relaxed load.
  static bool is_wanted() { return base::enabled(base::Channel::Perf, base::Level::Info); }
  /// The same, for a run of `plan` now. False while the program captures the device's work into a CUDA graph: no step may then wait for
  /// the device.
  static bool is_wanted_for(const codegen::Plan& plan) { return is_wanted() && !is_captured(plan); }

  explicit StepClock(const codegen::Plan& plan);
  ~StepClock() { finish(); }
  void start(const codegen::Step& step, const codegen::Slots& slots);
  void finish();
  void end_step(const codegen::Slots& slots);

 private:
  static bool is_captured(const codegen::Plan& plan);
  void sum_up() const;
  void log_steps() const;
  void look_at_held(int64_t step, const codegen::Slots& slots);

  const codegen::Plan& plan_;
  const codegen::Backend* const backend_;
  const double copy_bandwidth_;  // for the log; 0 if unknown or not needed
  const bool looks_;             // measures what the slots hold
  const size_t looks_every_;
  std::vector<Lap> laps_;
  std::vector<HeldBytes> held_;
  std::chrono::steady_clock::time_point started_;
};

/// Times the steps of a plan that execute() runs.
class TimedSteps final : public codegen::StepRunner {
 public:
  TimedSteps(const codegen::Plan& plan, const codegen::Slots& slots) : clock_(plan), slots_(slots) {}
  /// Call it after the last step, unless a step threw.
  void end() { clock_.end_step(slots_); }
  bool run(const codegen::Step& step) override { return clock_.start(step, slots_), false; }

 private:
  StepClock clock_;
  const codegen::Slots& slots_;
};

/// The most expensive first.
std::vector<StepTime> costliest_steps(size_t count);
void reset_step_times();

}  // namespace hindcast::engine
