#pragma once
// Programs with a backward that run on any device: on a card (tests/gpu), and, so that they are known to be right, on the CPU in kernels
// for CUDA that the emulator runs (tests/codegen/cuda).

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/forward_program.h"

namespace hindcast::tests {

/// Where one run of a program is, and in which type.
struct Setting {
  c10::Device device, other;  // the same where there is one device
  at::ScalarType type;        // of its tensors
  at::ScalarType values;      // that can hold all numbers it begins with: the truth in float64 begins with those of the type in question
  int step = 0;

  /// Of normal random numbers, the same on all devices.
  at::Tensor constant(at::IntArrayRef sizes) const;
  at::Tensor leaf(at::IntArrayRef sizes) const;
  /// From 0 to `end` - 1.
  at::Tensor integers(int64_t end, at::IntArrayRef sizes) const;
  at::Tensor on_device(const at::Tensor& tensor) const;
};

/// Types of programs without restrictions.
inline const std::vector<at::ScalarType> kFloats = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

/// With a gradient of normal random numbers, in the type of the result.
void backward_of(const at::Tensor& result, const Setting& setting);

struct DeviceProgram {
  std::string name;
  /// Makes all that it needs, calls backward() or grad(), and returns what must be near.
  std::function<Tensors(const Setting&)> run;
  std::vector<at::ScalarType> types = {at::kFloat, at::kDouble};
  /// Kernels that the emulator has run then, beside others.
  Names kernels = {};
  /// In float64 the truth is the stock result itself, which is off by more where long sums or what cancels is in it.
  int units_in_double = 16;
  /// In other types: the truth is that of float64.
  int units = 4;
  /// By result, the size of the terms that may cancel in it: its error is in units of them. Results without an entry have none.
  std::vector<double> terms = {};
};
inline std::ostream& operator<<(std::ostream& out, const DeviceProgram& program) { return out << program.name; }

/// Undefined ones as tensors without elements.
Tensors grads_of(const Tensors& leaves);

std::vector<DeviceProgram> pointwise_programs(), row_programs(), leaf_programs(), engine_programs();
/// All of them.
const std::vector<DeviceProgram>& device_programs();

/// Several steps with the stock engine and with kernels, in each type.
void expect_like_stock(const DeviceProgram& program, c10::Device device, c10::Device other);

}  // namespace hindcast::tests
