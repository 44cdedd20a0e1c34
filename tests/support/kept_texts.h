#pragma once
// Kernel texts that a test run saves, to be compiled elsewhere (tests/machine_code, and the bundle for cards).

#include <string>
#include <string_view>

namespace hindcast::tests {

/// Writes the text to the folder that HINDCAST_KEPT_TEXTS names, if any, as `<name>-<n>.cu`: the n-th text of this name, counted from 1. A
/// text that this process has kept before is not written again.
void keep_text(std::string_view text, std::string name);

/// The same under the name of the running test, with '-' for each '/'.
void keep_text(std::string_view text);

}  // namespace hindcast::tests
