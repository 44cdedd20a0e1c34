#pragma once

#include <string>

namespace hindcast::tests {

/// From now on a segmentation fault of this process says what was under way, and where the thread was. GoogleTest says neither.
void report_crashes();

/// What is under way.
void set_under_way(const std::string& what);

}  // namespace hindcast::tests
