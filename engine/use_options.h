#pragma once
// What the engine makes of options, and of the environment that takes part.

#include "engine/options.h"

namespace hindcast::engine {

/// Throws std::invalid_argument naming the option, what was given and what is expected.
void check(const Options& options);
/// How a compiler's graphs are replayed; Compiled: by the functions that it makes.
enum class Replay { Eager, Kernels, GroupsThroughAten, Compiled };
Replay replay_of(const Compiler& compiler);
/// What HINDCAST_COMPILER names, or fused(). Throws std::invalid_argument for any other name.
const Compiler& default_compiler();
/// False where HINDCAST_BACK_OFF is 0. Read once.
bool may_back_off();
/// HINDCAST_DISABLE is set to something other than 0 or nothing. Read once.
bool disabled_by_environment();

}  // namespace hindcast::engine
