#pragma once
// The question for every program with functions: does a user see the same when they are compiled ahead of time?

#include <hindcast/aot.h>

#include <map>
#include <string>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// Totals over programs with functions.
struct FunctionCounts {
  uint64_t programs = 0, functions = 0, writing = 0, drawing = 0, sharing = 0;
  uint64_t runs = 0, exact_runs = 0, rounded_runs = 0;  ///< with functions compiled; rounded: equal in float64 only
  uint64_t fused = 0;                                   ///< programs and captures with kernels
  AotStats calls;
  std::map<std::string, uint64_t> stopped;  ///< runs of which not all was compared, by the reason

  void add(const FunctionCounts& other);
  std::string text() const;
};

struct FunctionComparison {
  std::string difference;  ///< empty: none
  FunctionCounts counts;
};

AotOptions aot_options_of(const Program& program);

/// Runs the program eagerly, with its functions compiled, and, if it says so, with hindcast's engine too. `kernels`: with hindcast's own.
FunctionComparison compare_functions(const Program& program, bool kernels = false);

}  // namespace hindcast::tests::fuzz
