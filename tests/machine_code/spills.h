#pragma once

#include "tests/support/machine_code.h"

#include <map>
#include <string>
#include <utility>

namespace hindcast::tests {

/// Whether a kernel of the text spills for lack of registers, beyond what CUDA's own functions save around calls.
bool lacks_registers(const std::string& text, const std::string& kernel, const KernelUse& use);

/// By a text's label and an entry point: the most bytes that it may spill for lack of registers.
using AllowedSpills = std::map<std::pair<std::string, std::string>, int>;

/// Throws std::invalid_argument, with the file and the line, for a line that is not `<label> <entry point> <bytes>`.
AllowedSpills read_allowed_spills(const std::string& path);

}  // namespace hindcast::tests
