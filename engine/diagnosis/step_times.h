#pragma once
// What each step of each graph costs, while the log `perf` is on: report() shows the costliest.

#include "capture/backward/backward_graph.h"
#include "codegen/kernel/backend.h"
#include "codegen/plan/plan.h"

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
  double bytes = 0;                           // read and written, summed; a tensor that is broadcast counts once
  const codegen::Backend* backend = nullptr;  // of the graph, if there is one
};

/// Measures the steps of one run, one after the other.
class StepClock {
 public:
  /// `graph`: whose plan runs.
  explicit StepClock(const capture::BackwardGraph& graph) : graph_(graph), backend_(codegen::backend_of(graph)) {}
  ~StepClock() { finish(); }
  void start(const codegen::Step& step, const codegen::Slots& slots);
  void finish();
  void end_step(const codegen::Slots& slots);

 private:
  struct Lap {
    const codegen::Step* step;
    double us, bytes;
  };
  const capture::BackwardGraph& graph_;
  const codegen::Backend* const backend_;
  std::vector<Lap> laps_;
  std::chrono::steady_clock::time_point started_;
};

/// The costliest first.
std::vector<StepTime> costliest_steps(size_t count);
void reset_step_times();

}  // namespace hindcast::engine
