#pragma once
// Records of runs: what each step of a plan took and moved, and what the run held behind it.
//
// Of a plan's runs the 1st, 2nd, 4th, 7th, 11th are records, and so on by half as many again: a training of months has some fifty of
// each plan. A record has the means of all runs so far.

#include "codegen/kernel/backend.h"
#include "codegen/plan/plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::engine {

/// A step that was run.
struct Lap {
  const codegen::Step* step;
  double us, bytes;
};

/// Bytes that the slots' tensors hold behind a step; before the first one, behind step -1. What is shared counts once.
struct HeldBytes {
  int64_t step;
  double bytes;
};

double held_bytes(const codegen::Slots& slots);

/// The next run of this plan will be a record, and wants HeldBytes. They cost a look at all slots.
bool wants_held_bytes(const codegen::Plan& plan);

/// `name_of`: what a step is called.
void record_run(const codegen::Plan& plan, const std::vector<Lap>& laps, const std::vector<HeldBytes>& held,
                std::string (*name_of)(const codegen::Step& step, const capture::Graph& graph));

}  // namespace hindcast::engine
