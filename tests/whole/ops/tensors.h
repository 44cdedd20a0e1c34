#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

#include "tests/whole/ops/setting.h"

namespace hindcast::tests::ops {

/// The device of operands and root gradients.
inline at::Device device_of_operands = at::kCPU;

/// Creates the tensors of one run, the same ones for the same setting, and knows which of them are leaves.
class TensorMaker {
 public:
  explicit TensorMaker(const Setting& setting);

  at::Tensor normal(at::IntArrayRef sizes, at::ScalarType dtype);
  at::Tensor uniform(double low, double high, at::IntArrayRef sizes);
  at::Tensor positive_definite(at::IntArrayRef sizes);  // symmetric, or hermitian; batches of n x n
  at::Tensor index(int64_t bound, at::IntArrayRef sizes);
  at::Tensor mask(at::IntArrayRef sizes);
  at::Tensor permutation(int64_t n);

  /// The values as a leaf with the setting's memory layout, or as a view of such a leaf. Returns the operand.
  at::Tensor leaf(at::Tensor values, bool special_values = true);

  /// The values with the setting's memory layout, without a gradient.
  at::Tensor constant(at::Tensor values);

  std::vector<at::Tensor>& leaves() { return leaves_; }
  const Setting& setting() const { return setting_; }

 private:
  at::Tensor new_leaf(const at::Tensor& values);

  Setting setting_;
  at::Generator generator_;
  std::vector<at::Tensor> leaves_;
};

/// A root gradient with the sizes and the dtype of an output.
at::Tensor root_gradient(const at::Tensor& output, Root root, uint64_t seed);

}  // namespace hindcast::tests::ops
