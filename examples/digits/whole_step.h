#pragma once

#include <string>

#include "examples/digits/data.h"
#include "examples/digits/options.h"
#include "hindcast/hindcast.h"

namespace digits {

/// Trains the models four times side by side, each time with one line more of hindcast, and returns what a training step took as a table.
std::string whole_steps(const Digits& digits, const Options& options, const ::hindcast::Compiler& compiler);

}  // namespace digits
