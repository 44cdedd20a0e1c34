#pragma once
// One node of every class that LibTorch generates, each member filled with values that occur nowhere else in the node, so that swapped
// fields show. scripts/generate_collectors.py --samples writes the makers at build time.

#include <ATen/TensorGeometry.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hindcast::tests {

class SampleValues {
 public:
  void fill(torch::autograd::SavedVariable& value) { value = torch::autograd::SavedVariable(at::empty({2, next()}), false); }
  void fill(c10::SymInt& value) { value = next(); }
  void fill(at::Scalar& value) { value = static_cast<double>(next()); }
  void fill(double& value) { value = static_cast<double>(next()); }
  void fill(torch::autograd::TypeAndSize& value) {
    fill(value.sym_sizes);
    value.options = at::TensorOptions(at::kDouble);
  }
  void fill(at::TensorGeometry& value) {
    std::vector<c10::SymInt> sizes, strides;
    fill(sizes);
    fill(strides);
    value = at::TensorGeometry(sizes, strides, next());
  }

  // Nothing matches constants: any valid value will do.
  void fill(int64_t& value) { value = 1; }
  void fill(size_t& value) { value = 1; }
  void fill(bool& value) { value = true; }
  void fill(std::string& value) { value = "mean"; }
  void fill(at::TensorOptions& value) { value = at::TensorOptions(at::kFloat); }
  void fill(at::ScalarType& value) { value = at::kFloat; }
  void fill(at::Layout& value) { value = at::kStrided; }

  template <class T>
  void fill(std::vector<T>& value) {
    value.resize(2);
    for (T& element : value) fill(element);
  }
  template <class T>
  void fill(std::optional<T>& value) {
    fill(value.emplace());
  }
  template <class T>
  void fill(c10::OptionalArray<T>& value) {
    fill(value.list.emplace());
  }

 private:
  int64_t next() { return next_++; }
  int64_t next_ = 1000;
};

struct SampleNode {
  const char* name;
  torch::autograd::Node* (*make)(SampleValues&);  // the caller owns the node
};

std::span<const SampleNode> sample_nodes();

}  // namespace hindcast::tests
