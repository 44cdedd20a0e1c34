#pragma once

#include <exception>
#include <string>

namespace hindcast::base {

/// What an exception says, for reasons and logs. LibTorch's exceptions go on with a backtrace of C++, and Python's with one of Python.
std::string first_line(const std::exception& error);

}  // namespace hindcast::base
