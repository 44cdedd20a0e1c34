#pragma once

#include "bench/settings.h"

namespace hindcast::bench {

/// What `--soak=PROGRAM/stock` or `--soak=PROGRAM/hindcast` does: runs one engine through one program, prints its memory and
/// time for the process that waits for it. Returns the exit status; throws std::invalid_argument for any other name.
int run_soak(const Settings& settings);

}  // namespace hindcast::bench
