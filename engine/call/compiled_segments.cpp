#include "engine/call/compiled_segments.h"

#include "base/format.h"
#include "capture/backward/collect.h"
#include "codegen/plan/execute.h"

#include <stdexcept>
#include <utility>

namespace hindcast::engine {

bool CompiledSegments::run(const codegen::Step& step, codegen::Slots& slots, bool user_code_ran) {
  const auto& segments = plan_.segments();
  while (segment_ < segments.size() && step.instr >= segments[segment_].last_instr) {
    ++segment_;
    is_done_ = false;
  }
  if (segment_ == segments.size()) return false;
  const SegmentFunction& function = (*functions_)[segment_];
  if (!function) return false;
  if (!is_done_) {
    const auto& segment = segments[segment_];
    if (user_code_ran && !is_as_collected(segment)) return false;
    std::vector<at::Tensor> inputs;
    for (const uint32_t slot : segment.inputs) inputs.push_back(slots[slot]);
    std::vector<at::Tensor> outputs = function(std::move(inputs), bindings_);
    if (outputs.size() != segment.outputs.size()) {
      throw std::invalid_argument(
          base::format("hindcast: a compiled segment returned {} tensors, expected {}", outputs.size(), segment.outputs.size()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) slots[segment.outputs[i]] = std::move(outputs[i]);
    is_done_ = true;
  }
  codegen::free_last_uses(step, slots);
  return true;
}

bool CompiledSegments::is_as_collected(const codegen::PlannedSegment& segment) const {
  const auto& instrs = plan_.graph().instrs;
  for (uint32_t i = segment.first_instr; i < segment.last_instr; ++i) {
    if (plan_.backward().is(instrs[i], capture::EventKind::NodeStart) && !capture::is_as_collected(collected_, instrs[i].origin))
      return false;
  }
  return true;
}

}  // namespace hindcast::engine
