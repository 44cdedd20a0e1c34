#pragma once
// A step's call for tensors of known layouts: loops, distances in memory and layouts of results are worked out, so that a run gives addresses.

#include "capture/symbols/symbols.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace hindcast::codegen {

struct TensorLayout {
  at::DimVector sizes, strides;
  at::ScalarType type = at::ScalarType::Float;

  static TensorLayout of(const at::Tensor& tensor);
  bool is_of(const at::Tensor& tensor) const;
  /// Of a dense tensor.
  int64_t bytes() const;
};

class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  /// `addresses`: of the step's inputs, then of its results.
  virtual void run(char* const* addresses, const capture::Env& env) const = 0;

  /// Uninitialised memory for results.
  virtual at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) const = 0;

  std::vector<TensorLayout> results;  // by Step::outputs
  std::optional<int64_t> view_at;     // of a view: where it begins in the memory of the step's first argument, in bytes; nothing runs
};

}  // namespace hindcast::codegen
