#pragma once

#include <string>
#include <vector>

#include "bench/workload.h"

// The functions of two tutorials, as a C++ user would write them: plain ATen calls, eager.

namespace hindcast::bench {

// The AOT Autograd tutorial's (a + b + c + d).cos().cos().sum() on four leaves of 1024 x 2048 floats.
enum class AfterBackward { Nothing, ClipAndSgd, ClipAndAdam };
Workload aot_tutorial(AfterBackward after);
Workload aot_tutorial_accumulating();  // adds to the gradients of a first backward

/// One of the fused patterns of xFormers, and what it is called in the name of a row.
struct Pattern {
  std::string name;
  Workload (*build)(at::IntArrayRef sizes);
};
const std::vector<Pattern>& xformers_patterns();

}  // namespace hindcast::bench
