#pragma once
// The line of a program that is traced, for messages.

#include <string>

namespace hindcast::capture {

/// How an interpreter says in which line of the traced function it is; an empty text: in none.
void find_lines_by(std::string (*find)());
/// " (in line 12 of model.py, in forward)", or nothing.
std::string where_in_code();

}  // namespace hindcast::capture
