#pragma once
// Small tensors that are full of one number, as `ones_like(loss)` is, and that kernels alone read: made once, and the same in each run. Kernels
// never write to them, since the call that keeps them is another owner of their memory.

#include "codegen/fuse/schedule.h"
#include "codegen/plan/plan.h"

#include <memory>
#include <vector>

namespace hindcast::codegen {

/// By instr: what it makes can be kept. On the CPU only: on a card, another stream may read it before it is written.
std::vector<bool> find_kept_fills(const capture::Graph& graph, const Schedule& schedule);

/// `make` makes the step's one result.
std::unique_ptr<const OpCall> make_kept_fill(const capture::Value& value, std::unique_ptr<const OpCall> make);

}  // namespace hindcast::codegen
