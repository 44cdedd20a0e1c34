#pragma once
// Finds the runs of steps that one CUDA graph can replace (engine/cuda_graphs/recordings.h).
//
// A *region* ends where the host must act: at user code; where nodes are checked again, after which the rest may run node by node; at a
// step that reads or makes a tensor of another device; at an op of another library, which may not even use the current stream; and at an
// op that draws random numbers, since a CUDA graph would repeat them. Kernels and arithmetic may read a host scalar, as saved by Python's
// `x * 0.5`: its value is baked into the CUDA graph, which is valid only while the scalar does not change. Accumulation, results of
// grad() and releases may be inside a region: they read what the region made, and the host does them after it.

#include "engine/plan/backward_plan.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hindcast::engine {

struct Region {
  uint32_t first = 0, last = 0;    // half-open range of steps; the first one computes
  c10::Device device = c10::kCPU;  // of all tensors of the region
  uint32_t calls = 0;              // steps that compute
  std::vector<uint32_t> inputs;    // slots that the region reads and did not make
  std::vector<uint32_t> numbers;   // slots of host scalars that it reads
  std::vector<uint32_t> outputs;   // slots that it makes and later steps read
  std::vector<uint32_t> results;   // events in it that are the last readers of what it makes: accumulations, results of grad()
};

struct Regions {
  std::vector<Region> all;  // those worth a CUDA graph, in order
  std::string why_not_one;  // why the whole plan is not one region; empty if it is
};

/// A region with fewer computing steps is not worth a CUDA graph.
inline constexpr uint32_t kFewestCalls = 4;

/// `changing`: slots of host scalars that change between training steps.
Regions find_regions(const BackwardPlan& plan, const std::vector<uint32_t>& changing = {});

/// Why a whole plan without events cannot be captured into one CUDA graph of the device; empty if it can.
std::string why_not_recorded_plan(const codegen::Plan& plan, c10::Device device);

}  // namespace hindcast::engine
