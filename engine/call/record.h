#pragma once
// Decides whether a hit may run with CUDA graphs.

#include "engine/cache/variants.h"
#include "engine/cuda_graphs/recordings.h"
#include "hindcast/options.h"
#include "hindcast/symbols.h"

namespace hindcast::engine {

/// Empty if the options do not ask for CUDA graphs, if the plan cannot have any (which is counted), or if another run is inside. Throws
/// std::runtime_error if the options require a CUDA graph and the plan can never have one.
EnteredPlan enter_recorded_plan(const Found& found, const capture::Bindings& bindings, const Options& options, bool has_many_streams);

}  // namespace hindcast::engine
