#pragma once
// How the engine interprets Options, and the environment variables that override or complete them.

#include "hindcast/options.h"

namespace hindcast::engine {

/// Throws std::invalid_argument naming the option, what was given and what is expected.
void check(const Options& options);
/// How a compiler's graphs are replayed. Compiled: by the functions that the user's compiler returns.
enum class Replay { Eager, Kernels, GroupsThroughAten, Compiled };
Replay replay_of(const Compiler& compiler);
/// The compiler that HINDCAST_COMPILER names; fused() if it is not set. Throws std::invalid_argument for an unknown name.
const Compiler& default_compiler();
/// False if HINDCAST_BACK_OFF is 0. Read once.
bool may_back_off();
/// True if HINDCAST_DISABLE is set to anything but 0 or the empty string. Read once.
bool disabled_by_environment();

}  // namespace hindcast::engine
