#pragma once
// A step's call specialised for known tensor layouts: loops, strides and result layouts are precomputed, so a run only passes addresses.

#include "hindcast/symbols.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace hindcast::codegen {

struct TensorLayout {
  at::DimVector sizes, strides;
  at::ScalarType type = at::ScalarType::Float;

  static TensorLayout of(const at::Tensor& tensor);
  bool is_of(const at::Tensor& tensor) const;
  /// Bytes of a dense tensor with this layout.
  int64_t bytes() const;
};

class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  /// `addresses`: those of the step's inputs, then those of its results.
  virtual void run(char* const* addresses, const capture::Env& env) const = 0;

  /// An uninitialised tensor for a result.
  virtual at::Tensor make_tensor(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) const = 0;

  std::vector<TensorLayout> results;  // by Step::outputs
  /// By Step::outputs, for views, which run nothing: byte offsets in the memory of the step's first argument. Empty for other calls.
  std::vector<int64_t> views_at;
};

}  // namespace hindcast::codegen
