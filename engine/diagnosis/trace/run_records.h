#pragma once
// Trace records of runs: each step's time and bytes moved, and the bytes held after it.
//
// Records are written for the 1st, 2nd, 4th, 7th, 11th run of a plan, and so on with intervals that grow by half: months of training
// write about fifty per plan. A record has the means of all runs so far.

#include "codegen/kernel/backend.h"
#include "codegen/plan/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::engine {

/// The measurement of one step.
struct Lap {
  const codegen::Step* step;
  double us, bytes;
};

/// Bytes that the slots' tensors hold after a step; step -1 means before the first. Shared storage counts once.
struct HeldBytes {
  int64_t step;
  double bytes;
};

double held_bytes(const codegen::Slots& slots);

/// True if the next run of this plan will be recorded, and needs HeldBytes. Measuring them visits all slots.
bool wants_held_bytes(const codegen::Plan& plan);

/// `name_of`: the step's name.
void record_run(const codegen::Plan& plan, const std::vector<Lap>& laps, const std::vector<HeldBytes>& held,
                std::string (*name_of)(const codegen::Step& step, const capture::Graph& graph));

}  // namespace hindcast::engine
