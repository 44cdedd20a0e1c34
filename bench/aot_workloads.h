#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/workload.h"

// The functions that the rows aot/... compile: of tensors, forward and backward.

namespace hindcast::bench {

using Tensors = std::vector<at::Tensor>;

struct AotWork {
  std::function<at::Tensor(const Tensors&)> function;
  Tensors arguments;
  Tensors leaves;       // whose gradients the backward fills
  at::Tensor incoming;  // the result's gradient; undefined where the result is a loss
  bool draws = false;   // random numbers: kernels draw others than ATen
  Tensors data = {};    // of a Workload
};

/// (a + b + c + d).cos().cos()
AotWork four_cosines(at::IntArrayRef sizes);

/// The model with its loss, as a function without arguments: parameters are read from outside.
AotWork whole_step(Workload work, bool draws = false);

/// One of the functions that xFormers compiles with memory_efficient_fusion(), on tensors of {B, M, K}.
struct AotPattern {
  std::string name;
  AotWork (*build)(at::IntArrayRef sizes);
};
const std::vector<AotPattern>& aot_patterns();

/// Functions of rows of a few elements.
struct AotShortRows {
  std::string name;
  AotWork (*build)(at::IntArrayRef sizes);
  std::vector<std::vector<int64_t>> sizes;
};
const std::vector<AotShortRows>& aot_short_rows();

/// Models with their losses, as functions without arguments.
struct AotModel {
  std::string name;
  std::function<AotWork()> build;
};
const std::vector<AotModel>& aot_models();

}  // namespace hindcast::bench
