#pragma once

#include "tests/support/machine_code.h"

#include <map>
#include <string>
#include <utility>

namespace hindcast::tests {

/// Whether a kernel of the text saves more to memory than functions of CUDA's own do where they are called, since it has too few registers.
bool lacks_registers(const std::string& text, const std::string& kernel, const KernelUse& use);

/// By a text's label and an entry point: the most bytes that it may spill though it lacks registers.
using AllowedSpills = std::map<std::pair<std::string, std::string>, int>;

/// Throws std::invalid_argument, with the file and the line, for what is none of `<label> <entry point> <bytes>`.
AllowedSpills read_allowed_spills(const std::string& path);

}  // namespace hindcast::tests
