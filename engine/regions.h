#pragma once
// Which steps of a plan a device can be given as one, so that a recording may take their place (engine/recordings.h).
//
// A *region* ends where the host has a say: at user code; where nodes are looked at again, and the rest may be left to them; at a step that
// reads or makes a tensor of another device; at an op of another library, which may not even use the current stream; and at one that draws
// random numbers, which would be the same ones again. A number of the host, as Python's `x * 0.5` saves one, may be read by kernels and by arithmetic: a recording has it in it, as long as it stays the same.
// Accumulation, results of grad() and releases stand inside of regions: they read what the region made, and the host does
// them behind it.

#include "engine/backward_plan.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::engine {

struct Region {
  uint32_t first = 0, last = 0;    // steps; the first one computes
  c10::Device device = c10::kCPU;  // of all its tensors
  uint32_t calls = 0;              // steps that compute
  std::vector<uint32_t> inputs;    // slots that it reads, made before it
  std::vector<uint32_t> numbers;   // slots of the host's numbers that it reads
  std::vector<uint32_t> outputs;   // slots that it makes and steps behind it read
  std::vector<uint32_t> results;   // events in it that are the last to read what it makes: accumulations, results of grad()
};

struct Regions {
  std::vector<Region> all;  // those that are worth a recording, in order
  std::string why_not_one;  // why not the whole plan is one region; empty: it is
};

/// Steps that compute, fewer of which are given one by one.
inline constexpr uint32_t kFewestCalls = 4;

/// `changing`: slots of numbers of the host that are other ones from step to step.
Regions find_regions(const BackwardPlan& plan, const std::vector<uint32_t>& changing = {});

/// Why a device cannot be given a whole plan without events as one; empty: it can.
std::string why_not_recorded_plan(const codegen::Plan& plan);

/// Calls `visit` with each SlotUse of a step.
template <class Visit>
void for_each_slot(const codegen::Step& step, Visit visit) {
  for (const codegen::StepArg& arg : step.args) {
    for (const codegen::SlotUse use : arg.slots) visit(use);
  }
  for (const codegen::SlotUse use : step.inputs) visit(use);
  visit(step.base);
}

}  // namespace hindcast::engine
