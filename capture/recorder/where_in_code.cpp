#include "capture/recorder/where_in_code.h"

#include <atomic>

namespace hindcast::capture {
namespace {

std::atomic<std::string (*)()> find_line = nullptr;

}  // namespace

void find_lines_by(std::string (*find)()) { find_line = find; }

std::string where_in_code() {
  const auto find = find_line.load();
  const std::string line = find == nullptr ? std::string() : find();
  return line.empty() ? line : " (in " + line + ")";
}

}  // namespace hindcast::capture
