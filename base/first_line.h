#pragma once

#include <exception>
#include <string>

namespace hindcast::base {

/// First line of an exception's text, for reasons and logs. LibTorch appends a C++ backtrace, and Python a Python one.
std::string first_line(const std::exception& error);

}  // namespace hindcast::base
