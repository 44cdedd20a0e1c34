#pragma once
// The state of LibTorch's default generators: the CPU's, and those of the devices that tensors are on.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace hindcast::capture {

class RandomState {
 public:
  /// The state of no generator.
  RandomState() = default;
  /// Their current state, for the devices of `tensors`.
  static RandomState of(c10::ArrayRef<at::Tensor> tensors);
  /// The current state of the same generators.
  RandomState now() const;

  bool defined() const { return !states_.empty(); }
  /// The same generators, and none has drawn between the two.
  bool is_same(const RandomState& other) const;
  void restore() const;

 private:
  void add(const at::Generator& generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

}  // namespace hindcast::capture
