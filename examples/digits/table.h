#pragma once

#include <string>
#include <vector>

#include "examples/digits/train.h"

namespace digits {

/// One row per model; a value that breaks a promise is marked "!". Below the rows are the reasons of misses, what the stock engine ran
/// instead, and the nodes that were called opaquely.
std::string table(const std::vector<Outcome>& outcomes, double allowed_difference);

}  // namespace digits
