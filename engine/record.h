#pragma once
// Whether a hit may be recorded, and launched as that.

#include "capture/symbols/symbols.h"
#include "engine/options.h"
#include "engine/recordings.h"
#include "engine/variants.h"

namespace hindcast::engine {

/// Of nobody where the options want no recordings, or the plan has none. Throws std::runtime_error where the options require one and
/// there can be none.
EnteredPlan enter_recorded_plan(const Found& found, const capture::Bindings& bindings, const Options& options);

}  // namespace hindcast::engine
