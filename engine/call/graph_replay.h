#pragma once
// CUDA graphs in the run of a plan: a launch at a region's first step does all of the region's steps.

#include "engine/cuda_graphs/recordings.h"
#include "engine/plan/backward_plan.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hindcast::engine {

class GraphReplay {
 public:
  /// `recorded`: entered by this run; nullptr if the plan runs step by step. `most_bytes`: device memory that all CUDA graphs may hold.
  GraphReplay(const BackwardPlan& plan, RecordedPlan* recorded, size_t most_bytes)
      : plan_(plan), recorded_(recorded), most_bytes_(most_bytes) {}

  explicit operator bool() const { return recorded_ != nullptr; }

  /// Launches the region that begins at the step; for a later step of that region, only frees what the step used last. False: the step is
  /// to be run by itself. `call` must be of the plan that this object was made for.
  bool run(const codegen::Step& step, const RegionCall& call);

  /// What the last launch made for this event, which follows in its turn; nullptr: the event reads its slot.
  Delivered* delivered_to(const codegen::Step& step) {
    if (next_delivered_ == delivered_.size() || &plan_.steps()[delivered_[next_delivered_].step] != &step) return nullptr;
    return &delivered_[next_delivered_++];
  }

 private:
  const BackwardPlan& plan_;
  RecordedPlan* const recorded_;
  const size_t most_bytes_;
  std::vector<Delivered> delivered_;  // by the region that was launched last
  size_t next_delivered_ = 0;
  uint32_t region_end_ = 0;  // a step of the plan
};

}  // namespace hindcast::engine
