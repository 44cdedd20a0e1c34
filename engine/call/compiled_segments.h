#pragma once
// Segments of a plan that a user's graph compiler has compiled: its function runs in place of the segment's steps.

#include "capture/backward/collected.h"
#include "codegen/plan/plan.h"
#include "engine/plan/backward_plan.h"
#include "hindcast/options.h"

#include <cstddef>
#include <vector>

namespace hindcast::engine {

class CompiledSegments {
 public:
  /// `functions`: one per segment, empty for a segment that ATen runs; nullptr if the guard has no compiler of the user's.
  CompiledSegments(const BackwardPlan& plan, const std::vector<SegmentFunction>* functions, const capture::Bindings& bindings,
                   const capture::Collected& collected)
      : plan_(plan), functions_(functions), bindings_(bindings), collected_(collected) {}

  explicit operator bool() const { return functions_ != nullptr; }

  /// Runs the function in place of the segment's first step; the segment's other steps only free what they used last. False: the step is to
  /// be run by itself. `user_code_ran`: hooks may have changed nodes that the segment replaces; if so, it runs op by op up to that node.
  /// Throws std::invalid_argument for a function that returns a wrong number of tensors.
  bool run(const codegen::Step& step, codegen::Slots& slots, bool user_code_ran);

 private:
  bool is_as_collected(const codegen::PlannedSegment& segment) const;

  const BackwardPlan& plan_;
  const std::vector<SegmentFunction>* const functions_;
  const capture::Bindings& bindings_;
  const capture::Collected& collected_;
  size_t segment_ = 0;  // of the plan
  bool is_done_ = false;
};

}  // namespace hindcast::engine
