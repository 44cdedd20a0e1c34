#pragma once
// What earlier runs on this machine found, by hash: a file beside the build, which is not committed. A line is a hash and what
// uses_as_text.h writes.

#include "tests/machine_code/uses_as_text.h"

#include <map>
#include <string>

namespace hindcast::tests {

using KnownUses = std::map<std::string, Uses>;

/// None where there is no file. Throws std::invalid_argument, with the file, on what write_known_uses() does not write.
KnownUses read_known_uses(const std::string& path);
/// Readers see all of it or what was there before.
void write_known_uses(const std::string& path, const KnownUses& known);

}  // namespace hindcast::tests
