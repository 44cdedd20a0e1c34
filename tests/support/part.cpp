#include "tests/support/part.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace hindcast::tests {

Part part_of_run() {
  const char* const text = std::getenv("HINDCAST_TEST_PART");
  if (text == nullptr || *text == '\0') return {};
  Part part;
  char rest = 0;
  if (std::sscanf(text, "%zu:%zu%c", &part.index, &part.count, &rest) != 2 || part.index >= part.count)
    throw std::invalid_argument("HINDCAST_TEST_PART is '" + std::string(text) + "'; expected index:count, such as 0:8");
  return part;
}

}  // namespace hindcast::tests
