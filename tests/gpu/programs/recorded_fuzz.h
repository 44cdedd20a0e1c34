#pragma once

#include "hindcast/hindcast.h"
#include "tests/whole/fuzz/compare.h"
#include "tests/whole/fuzz/program.h"

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

/// With or without CUDA graphs, and without options that read values on the host.
inline Options options_of_recordings(const Program& program, const Compiler& compiler, bool with_graphs) {
  Options options = options_of(program);
  options.verify = options.nan_guard = false;
  options.compiler = compiler;
  options.async = false;
  options.cuda_graphs = with_graphs;
  return options;
}

}  // namespace hindcast::tests::fuzz
