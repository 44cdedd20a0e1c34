#pragma once

#include <string>

#include "examples/digits/data.h"
#include "examples/digits/options.h"
#include "hindcast/hindcast.h"

namespace digits {

/// Trains the models four times in turn, each time with one more line of hindcast, and returns a table of the time per training step.
std::string whole_steps(const Digits& digits, const Options& options, const ::hindcast::Compiler& compiler);

}  // namespace digits
