#pragma once

#include "capture/backward/collect.h"
#include "engine/options.h"
#include "engine/workspace.h"

namespace hindcast::engine {

capture::CollectOptions collect_options(const Options& options);

/// Only for tests, which have an accelerator of their own: from now on backwards there are taken over as well.
void take_device_of_tests(c10::DeviceType device);

/// Nothing may round otherwise than it does at capture: the guard asks for it, or LibTorch is asked for deterministic algorithms.
bool is_to_the_bit(const Options& options);

/// Fills the workspace's `collected`, with a key of the call, of the state that it finds, and of the options that captures are made by.
/// False, before any effect, when the stock engine must run the call; the reason is counted. `with_history`: CollectOptions's.
bool collect(const capture::BackwardCall& call, const Options& options, bool to_the_bit, Workspace& work, bool with_history = false);

}  // namespace hindcast::engine
