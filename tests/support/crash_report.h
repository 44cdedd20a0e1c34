#pragma once

#include <string>

namespace hindcast::tests {

/// From now on, a segmentation fault prints the last text of set_under_way() and the thread's stack.
void report_crashes();

/// For report_crashes(): at most 1023 characters. Not safe from several threads.
void set_under_way(const std::string& what);

}  // namespace hindcast::tests
