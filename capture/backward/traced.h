#pragma once
// A gradient on its way through a trace.

#include "capture/graph/graph.h"

#include <torch/csrc/autograd/variable.h>

#include <vector>

namespace hindcast::capture {

class Recorder;

/// The real tensor, and the value of the graph that it is; an undefined value where nothing is recorded.
struct Traced {
  at::Tensor real;
  ValueId value;
};

torch::autograd::variable_list reals(const std::vector<Traced>& list);
ValueIds values(const std::vector<Traced>& list);

/// What a formula is given in the place of `list`.
torch::autograd::variable_list stand_ins(Recorder& recorder, const std::vector<Traced>& list);
/// What the stand-ins that a formula returned stand for.
std::vector<Traced> traced(Recorder& recorder, const torch::autograd::variable_list& list);

}  // namespace hindcast::capture
