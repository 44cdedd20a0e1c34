#include "base/first_line.h"

#include <algorithm>
#include <string_view>

namespace hindcast::base {

std::string first_line(const std::exception& error) {
  std::string_view text = error.what();
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \n")));
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace hindcast::base
