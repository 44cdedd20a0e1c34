#pragma once

#include "capture/backward/collect.h"
#include "engine/call/workspace.h"
#include "hindcast/options.h"

namespace hindcast::engine {

capture::CollectOptions collect_options(const Options& options);

/// For tests, which have an accelerator of their own: takes over backwards on `device` from now on.
void take_device_of_tests(c10::DeviceType device);

/// True if replays must round exactly as the capture does: the guard asks for it, or LibTorch is set to deterministic algorithms.
bool wants_equal_bits(const Options& options);

/// Fills `work.collected`. Its key covers the call, the global and thread state, and the options that affect captures. Returns false,
/// before any effect, when the stock engine must run the call; the reason is counted. `with_history`: see CollectOptions.
bool collect(const capture::BackwardCall& call, const Options& options, bool bitwise, Workspace& work, bool with_history = false);

}  // namespace hindcast::engine
