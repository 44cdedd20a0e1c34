#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "bench/workload.h"

// Parts of networks on a card, in the sizes that a large model has them in, and in small ones, where the host is what takes the time.

namespace hindcast::bench::gpu {

struct Row {
  std::string name;
  std::function<Workload(c10::Device device)>
      build;  // with its floor_bytes: saved tensors and the incoming gradient read, gradients written, once
};
std::vector<Row> rows();
/// Where the host's launches take the time. Run like steps of a training: one copy, each forward behind the backward before.
std::vector<Row> launch_bound_rows();

}  // namespace hindcast::bench::gpu
