#pragma once
// The line of the traced program, for messages.

#include <string>

namespace hindcast::capture {

/// Sets how an interpreter finds the current line of the traced function; `find` returns an empty string if the line is unknown.
void find_lines_by(std::string (*find)());
/// " (in line 12 of model.py, in forward)", or empty.
std::string where_in_code();

}  // namespace hindcast::capture
