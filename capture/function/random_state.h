#pragma once
// LibTorch's default generators: the CPU's, and those of the devices that tensors are on.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hindcast::capture {

class RandomState {
 public:
  /// Of no generator.
  RandomState() = default;
  /// As they are now.
  static RandomState of(c10::ArrayRef<at::Tensor> tensors);
  /// Of the same generators, as they are now.
  RandomState now() const;

  bool defined() const { return !states_.empty(); }
  /// Of the same generators, and none has drawn between the two.
  bool is_same(const RandomState& other) const;
  void restore() const;

 private:
  void add(const at::Generator& generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace hindcast::capture
