#pragma once
// Parts of a program as functions: their arguments and results.

#include <vector>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// Instructions first to last - 1 of a program as a function. Values are given by their numbers.
struct FunctionPart {
  size_t first = 0, last = 0;
  std::vector<int> arguments;
  std::vector<int> outside;  ///< lasting leaves that the body reads as they are
  std::vector<int> results;  ///< made inside and used behind it
  bool writes = false;       ///< to anything
  bool shares = false;       ///< something that it makes may share memory with something else
  bool draws = false;

  // What it knows of the step, as arguments of its own.
  bool number = false, batch = false, scalar = false;
  int batch_argument = -1;  ///< which argument has the batch as a size
  int64_t batch_dim = 0, batch_factor = 1;
};

std::vector<FunctionPart> functions_of(const Program& program);

/// The step as the function sees it.
Step step_inside(const FunctionPart& part, const Step& step);

/// A compiled function is one node: a hook on one of its results, or its requested gradient, gets only what flows in from outside. This
/// drops those for which it makes a difference.
void drop_what_functions_hide(Program& program);

/// The program of generate(), with functions in it.
Program generate_with_functions(uint64_t seed);

}  // namespace hindcast::tests::fuzz
