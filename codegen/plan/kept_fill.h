#pragma once
// Small constant-filled tensors, such as `ones_like(loss)`, that only kernels read: made once and reused in every run. Kernels never write
// to them in place, since the call that keeps them is another owner of their memory.

#include "codegen/fuse/schedule.h"
#include "codegen/plan/plan.h"

#include <memory>
#include <vector>

namespace hindcast::codegen {

/// By instr: whether its result can be kept. CPU only: on a GPU, another stream might read it before it is written.
std::vector<bool> find_kept_fills(const capture::Graph& graph, const Schedule& schedule);

/// Wraps `make`, which computes the step's only result, so that the result is kept.
std::unique_ptr<const OpCall> make_kept_fill(const capture::Value& value, std::unique_ptr<const OpCall> make);

}  // namespace hindcast::codegen
