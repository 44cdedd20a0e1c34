#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/workload.h"

// Parts of networks on a card, in the sizes that a large model has them in, and in small ones, where the host is what takes the time.

namespace hindcast::bench::gpu {

struct Place {
  c10::Device device;
  bool zeros = false;  // in the place of random numbers: soon made, for who looks at no values
};

struct Row {
  std::string name;
  std::function<Workload(const Place& place)>
      build;  // with its floor_bytes: saved tensors and the incoming gradient read, gradients written, once
  /// The workload's forward where it reads its leaves alone; else none.
  std::function<at::Tensor(const std::vector<at::Tensor>& leaves)> function = {};
  /// What forward and backward of `function` read and write at least, as two programs; 0 where there is none.
  double whole_floor_bytes = 0;
};
std::vector<Row> rows();
/// The function of the AOT tutorial, and what xFormers fuses, at the sizes and in the types that xFormers measures.
std::vector<Row> seed_rows();
/// Where the host's launches take the time. Run like steps of a training: one copy, each forward behind the backward before.
std::vector<Row> launch_bound_rows();

}  // namespace hindcast::bench::gpu
