#pragma once
// Whether a hit may be recorded, and launched as that.

#include "capture/symbols/symbols.h"
#include "engine/options.h"
#include "engine/recordings.h"
#include "engine/variants.h"

namespace hindcast::engine {

/// Of nobody where the options want no recordings, there can be none, which is counted, or a run is inside. Throws std::runtime_error
/// where the options require one and there can be none, now or later.
EnteredPlan enter_recorded_plan(const Found& found, const capture::Bindings& bindings, const Options& options, bool has_many_streams);

}  // namespace hindcast::engine
