#pragma once
// A gradient on its way through a trace.

#include "hindcast/graph.h"

#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace hindcast::capture {

class Recorder;

/// The real tensor and its value in the graph; the value is undefined if nothing is recorded.
struct Traced {
  at::Tensor real;
  ValueId value;
};

torch::autograd::variable_list reals(const std::vector<Traced>& list);
ValueIds values(const std::vector<Traced>& list);

/// The stand-ins that a formula receives for `list`.
torch::autograd::variable_list stand_ins(Recorder& recorder, const std::vector<Traced>& list);
/// The tensors and values behind the stand-ins that a formula returned.
std::vector<Traced> traced(Recorder& recorder, const torch::autograd::variable_list& list);

}  // namespace hindcast::capture
