#pragma once
// Step counts in tensors, as Python's optimizers keep them.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <utility>
#include <vector>

namespace hindcast::engine {

class StepCounts {
 public:
  /// Why count() does not support this tensor; empty if it does.
  static std::string_view why_not(const at::Tensor& count);

  /// Adds one, in the tensor's own precision, and returns the sum. `count` must live until done().
  double count(const at::Tensor& count);
  /// Undoes the last count().
  void take_back();
  void take_all_back();
  /// Marks the tensors as changed.
  void done();

 private:
  std::vector<std::pair<const at::Tensor*, double>> before_;
};

}  // namespace hindcast::engine
