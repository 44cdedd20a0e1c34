#pragma once

#include "tests/fuzz/program.h"

namespace hindcast::tests::fuzz {

/// The program with enough steps of one kind for CUDA graphs to be recorded and launched, and again with other sizes.
inline Program lengthened(Program program) {
  const std::vector<Step> few = program.steps;
  program.steps.clear();
  for (size_t i = 0; i < few.size() && i < 3; ++i) {
    for (int repeated = 0; repeated < 7; ++repeated) {
      Step step = few[i];
      step.number = static_cast<int>(program.steps.size());
      if (repeated > 0) step.scalar = few[i].scalar;
      program.steps.push_back(step);
    }
  }
  return program;
}

}  // namespace hindcast::tests::fuzz
