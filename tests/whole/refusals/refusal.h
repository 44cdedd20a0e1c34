#pragma once
// What every refusal must be: the stock engine's result to the bit, counted once under its own reason, said once where
// it is worth a warning, and forgotten by the next backward.

#include <functional>

#include "engine/counters/fallback.h"
#include "hindcast/hindcast.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {

struct Refusal {
  engine::FallbackReason reason;
  uint64_t taken_over = 0;  ///< backwards of the program that are not refused
  bool warns = true;
};

/// Runs `program` on both engines. It makes one call of backward() or grad() that hindcast refuses.
void expect_refused(const Refusal& expected, const std::function<std::vector<at::Tensor>()>& program, const Options& options = {});

}  // namespace hindcast::tests
