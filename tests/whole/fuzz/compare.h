#pragma once
// The question for every program: does hindcast let a user see what the stock engine does?

#include <cstdint>
#include <map>
#include <string>

#include "tests/whole/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// Totals over programs: a fuzzer whose programs all fail in the forward, or never hit, would test nothing.
struct Counts {
  uint64_t programs = 0, steps = 0, broken_steps = 0, calls = 0, throwing_calls = 0;
  uint64_t taken_over = 0, hits = 0, misses = 0, graphs = 0, fell_back = 0;
  uint64_t opaque_calls = 0, hook_calls = 0, segment_guard_failures = 0;
  std::map<std::string, uint64_t> fallbacks;

  void add(const Counts& other);
  std::string text() const;
};

struct Comparison {
  std::string difference;  ///< empty: none
  Counts counts;
};

Options options_of(const Program& program);

/// Runs the program with both engines.
Comparison compare(const Program& program);

}  // namespace hindcast::tests::fuzz
