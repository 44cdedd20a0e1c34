#pragma once
// Requirements of every refusal: the stock engine's result to the bit, one count under its own reason, one warning if it deserves one, and
// no effect on the next backward.

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
