#pragma once
// The resources of a text's kernels, as in the table: `dense=24 rows=40,shared:1024,stack:16,spilled:8`. A number is registers, the others
// are bytes and are left out if 0.

#include "tests/support/machine_code.h"

#include <map>
#include <string>

namespace hindcast::tests {

/// By entry point.
using Uses = std::map<std::string, KernelUse>;

std::string text_of(const Uses& uses);
/// Throws std::invalid_argument for what text_of() does not write.
Uses uses_of(const std::string& text);

}  // namespace hindcast::tests
