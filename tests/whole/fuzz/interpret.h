#pragma once
// Runs a fuzzed program on whatever engine is in place.

#include <hindcast/aot.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// Everything that one run lets a user see.
struct Observed {
  std::vector<std::string> events;
  int steps = 0;
  int broken_steps = 0;  ///< an instruction threw: nothing went backward in these
  int calls = 0;
  int throwing_calls = 0;
  Log log;             ///< the same events, and their tensors
  AotStats functions;  ///< of all functions
};

/// `compiled`: its functions are compiled ahead of time; else they run eagerly.
Observed interpret(const Program& program, const std::optional<AotOptions>& compiled = {});

}  // namespace hindcast::tests::fuzz
