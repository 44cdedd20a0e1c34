#pragma once
// Programs whose backwards are replayed as CUDA graphs: on a card (tests/gpu), and on a fake one (tests/engine/cuda_graphs).

#include <ATen/core/Tensor.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"

namespace hindcast::tests {

/// One step of a program, by number: returns what to compare.
using RecordedStep = std::function<std::vector<at::Tensor>(int step)>;

struct RecordedProgram {
  std::string name;
  /// Starts anew: leaves, and whatever else it keeps.
  std::function<RecordedStep(c10::Device)> make;
  uint64_t parts = 1;   // of its backward, each a graph
  std::string why_not;  // a part of the expected reason for having none
  int steps = 9;
  int lost_steps = 0;  // until hindcast knows what changes
};
inline std::ostream& operator<<(std::ostream& out, const RecordedProgram& program) { return out << program.name; }

const std::vector<RecordedProgram>& recorded_programs();
/// The one of this name.
const RecordedProgram& recorded_program(const std::string& name);

/// With kernels, step by step.
Options without_graphs();
/// The same, as CUDA graphs.
Options with_graphs();

/// How often each part is launched in this many steps: the first one is captured, and some are observed.
uint64_t launches_in(int steps);

/// The results of the steps, on the CPU.
std::vector<std::vector<at::Tensor>> run_recorded(const RecordedStep& step, const Options& options, int steps);

/// Expects equal bits with and without graphs. Returns the counts with them.
Stats expect_as_without_graphs(const RecordedProgram& program, c10::Device device, const Options& options = with_graphs());

}  // namespace hindcast::tests
