#pragma once
// Results of earlier runs on this machine, by hash: a file in the build folder, which is not committed. A line is a hash and what
// uses_as_text.h writes.

#include "tests/machine_code/uses_as_text.h"

#include <map>
#include <string>

namespace hindcast::tests {

using KnownUses = std::map<std::string, Uses>;

/// Empty if there is no file. Throws std::invalid_argument, with the file, on what write_known_uses() does not write.
KnownUses read_known_uses(const std::string& path);
/// Atomic: readers see the whole new file or the old one.
void write_known_uses(const std::string& path, const KnownUses& known);

}  // namespace hindcast::tests
