#pragma once
// Programs with a backward that run on any device: on a card (tests/gpu), and, to verify the programs, on the CPU in kernels for CUDA that
// the emulator runs (tests/codegen/cuda).

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/forward_program.h"

namespace hindcast::tests {

/// The device and the types of one run of a program.
struct Setting {
  c10::Device device, other;  // the same if there is one device
  at::ScalarType type;        // of its tensors
  at::ScalarType values;      // the type of its initial numbers: the reference in float64 starts with numbers of the type under test
  int step = 0;

  /// Normal random numbers, the same on all devices.
  at::Tensor constant(at::IntArrayRef sizes) const;
  at::Tensor leaf(at::IntArrayRef sizes) const;
  /// From 0 to `end` - 1.
  at::Tensor integers(int64_t end, at::IntArrayRef sizes) const;
  at::Tensor on_device(const at::Tensor& tensor) const;
};

/// Dtypes of programs without restrictions.
inline const std::vector<at::ScalarType> kFloats = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

/// With a normal random gradient, in the type of the result.
void backward_of(const at::Tensor& result, const Setting& setting);

struct DeviceProgram {
  std::string name;
  /// Creates all that it needs, calls backward() or grad(), and returns the tensors to compare.
  std::function<Tensors(const Setting&)> run;
  std::vector<at::ScalarType> types = {at::kFloat, at::kDouble};
  /// Kernels that the emulator must have run, among others.
  Names kernels = {};
  /// In float64 the reference is the stock result itself, which is off by more after long sums or cancellation.
  int units_in_double = 16;
  /// In other types the reference is the float64 result.
  int units = 4;
  /// For each result, the size of the terms that may cancel in it: its error is in units of them. Results without an entry have none.
  std::vector<double> terms = {};
};
inline std::ostream& operator<<(std::ostream& out, const DeviceProgram& program) { return out << program.name; }

/// Undefined ones as tensors without elements.
Tensors grads_of(const Tensors& leaves);

std::vector<DeviceProgram> pointwise_programs(), row_programs(), leaf_programs(), engine_programs();
/// All of them.
const std::vector<DeviceProgram>& device_programs();

/// Several steps with the stock engine and with kernels, in each dtype.
void expect_like_stock(const DeviceProgram& program, c10::Device device, c10::Device other);

}  // namespace hindcast::tests
