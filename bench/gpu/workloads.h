#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/workload.h"

// Parts of networks on a card, in the sizes of a large model, and in small ones, where the host dominates.

namespace hindcast::bench::gpu {

struct Place {
  c10::Device device;
  bool zeros = false;  // instead of random numbers: quicker, if values do not matter
};

struct Row {
  std::string name;
  std::function<Workload(const Place& place)>
      build;  // with its floor_bytes: saved tensors and the incoming gradient read, gradients written, once
  /// The workload's forward if it reads only its leaves; else none.
  std::function<at::Tensor(const std::vector<at::Tensor>& leaves)> function = {};
  /// Bytes that forward and backward of `function` must read and write, as two programs; 0 without a function.
  double whole_floor_bytes = 0;
};
std::vector<Row> rows();
/// The function of the AOT tutorial, and the patterns that xFormers fuses, with the sizes and dtypes that xFormers measures.
std::vector<Row> seed_rows();
/// Rows dominated by the host's launches. Run like training steps: one copy, each forward after the previous backward.
std::vector<Row> launch_bound_rows();

}  // namespace hindcast::bench::gpu
