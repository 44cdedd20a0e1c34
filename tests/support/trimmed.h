#pragma once

#include <sstream>
#include <string>

namespace hindcast::tests {

/// Without blanks at line ends.
inline std::string trimmed(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

}  // namespace hindcast::tests
