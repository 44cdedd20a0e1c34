#pragma once

#include <string>

namespace hindcast::tests {

/// From now on, a segmentation fault prints what set_under_way() was last told, and the stack of the thread.
void report_crashes();

/// For report_crashes(): at most 1023 characters. Not safe from several threads.
void set_under_way(const std::string& what);

}  // namespace hindcast::tests
