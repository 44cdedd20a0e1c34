#pragma once
// One program with and without checkpoints, with the stock engine and under hindcast: the same events.

#include <hindcast/checkpoint.h>

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/support/programs.h"

namespace hindcast::tests {

/// Calls functions directly, or through checkpoint().
struct Checkpoints {
  bool are_on;
  CheckpointOptions options = {};

  template <class Function, class... Args>
  auto operator()(Function fn, const Args&... args) const {
    return are_on ? checkpoint(options, std::move(fn), args...) : fn(args...);
  }
};

using StepWithCheckpoints = std::function<void(Log&, int step, const Checkpoints&)>;

inline std::vector<std::string> events_of(int steps, const StepWithCheckpoints& step, bool with) {
  at::manual_seed(7);
  Log log;
  for (int i = 0; i < steps; ++i) step(log, i, {with});
  return log.events();
}

inline void expect_same_with_checkpoints(int steps, const StepWithCheckpoints& step, Takeover takeover = Takeover::Hits) {
  EXPECT_EQ(events_of(steps, step, true), events_of(steps, step, false));
  expect_same_steps(
      steps, [&](Log& log, int i) { step(log, i, {true}); }, takeover);
}

}  // namespace hindcast::tests
