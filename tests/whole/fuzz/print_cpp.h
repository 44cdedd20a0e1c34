#pragma once
// A fuzzed program as C++.

#include <string>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// `void program(Log& log) { ... }`, in terms of runtime.h. With functions, it also takes the options that they are compiled with, and
/// needs function_runtime.h.
std::string print_program(const Program& program);

/// A source file that needs LibTorch and hindcast only; its main() returns 1 where the engines differ.
std::string print_reproducer(const Program& program);

}  // namespace hindcast::tests::fuzz
