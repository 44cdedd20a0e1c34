#include "engine/call/graph_replay.h"

#include "codegen/plan/execute.h"

namespace hindcast::engine {

bool GraphReplay::run(const codegen::Step& step, const RegionCall& call) {
  const auto number = static_cast<uint32_t>(&step - plan_.steps().data());
  if (number >= region_end_) {
    RecordedRegion* const region = recorded_->region_at(number);
    if (region == nullptr || !recorded_->run(*region, call, most_bytes_, delivered_)) return false;
    region_end_ = region->region().last;
    next_delivered_ = 0;
  }
  codegen::free_last_uses(step, call.slots);
  return true;
}

}  // namespace hindcast::engine
