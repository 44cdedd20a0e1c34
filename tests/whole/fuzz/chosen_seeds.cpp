#include "tests/whole/fuzz/chosen_seeds.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/support/part.h"

namespace hindcast::tests::fuzz {
namespace {

Seeds part_of(Seeds all) {
  const Part part = part_of_run();
  const uint64_t count = all.count / part.count;
  return {all.first + part.index * count, count};
}

}  // namespace

Seeds chosen_seeds(uint64_t count) {
  const char* text = std::getenv("HINDCAST_FUZZ_SEEDS");
  if (text == nullptr || *text == '\0') return part_of({1, count});
  unsigned long long first = 0, number = 0;
  char rest = 0;
  if (std::sscanf(text, "%llu:%llu%c", &first, &number, &rest) != 2) {
    throw std::invalid_argument("HINDCAST_FUZZ_SEEDS is '" + std::string(text) + "'; expected first:count, such as 5000:100");
  }
  return part_of({first, number});
}

}  // namespace hindcast::tests::fuzz
