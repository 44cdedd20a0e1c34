#pragma once
// Runs a fuzzed program on whatever engine is in place.

#include <string>
#include <vector>

#include "tests/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// All that one run let a user see.
struct Observed {
  std::vector<std::string> events;
  int steps = 0;
  int broken_steps = 0;  ///< an instruction threw: nothing went backward in these
  int calls = 0;
  int throwing_calls = 0;
};

Observed interpret(const Program& program);

}  // namespace hindcast::tests::fuzz
