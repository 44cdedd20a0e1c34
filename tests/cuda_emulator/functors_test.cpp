// The device library compiled by the emulator, with CUDA's branches, compared with the same for the CPU.

#include "codegen/device/ops.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/cuda_emulator/emulator_test.h"

namespace hindcast::device {
namespace {

struct Named {
  const char* name;
  double value;
};

template <class T>
std::vector<Named> on_the_cpu(T x, T y) {
  return {
#define HC_EACH(name, expression) {#name, static_cast<double>(expression)},
#include "tests/cuda_emulator/functors.inc"
#undef HC_EACH
  };
}

}  // namespace
}  // namespace hindcast::device

namespace hindcast::tests::cuda {
namespace {

class Functors : public EmulatorTest {};

template <class T>
std::vector<T> arguments(int count, double size) {
  std::vector<T> values = random_values<T>(count, -size, size);
  const T special[] = {T(0), T(-0.0), T(1), T(-1), T(1e30), std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()};
  for (size_t i = 0; i < std::min(values.size(), std::size(special)); ++i) values[i] = special[i];
  return values;
}

template <class T>
void expect_the_same(const char* kernel, int n) {
  const auto x = arguments<T>(n, 20), y = arguments<T>(n + 3, 4);
  const size_t rows = device::on_the_cpu(T(1), T(1)).size();
  DeviceArray<T> xs(x), ys(y), out(rows * n);
  launch_with(kernel_of("functors", kernel), {{blocks_for(n, 128)}, {128}}, xs.data(), ys.data(), out.data(), n);
  const auto results = out.values();
  for (int i = 0; i < n; ++i) {
    const auto expected = device::on_the_cpu(x[i], y[i]);
    for (size_t row = 0; row < rows; ++row) {
      const double result = results[row * n + i];
      if (std::isnan(expected[row].value) && std::isnan(result)) continue;
      // CUDA reduces angles differently from the CPU; both are exact to 1.5 ulp (coverage.h).
      const std::string name = expected[row].name;
      const bool angle = name == "sin" || name == "cos" || name == "tan";
      const double ulps = angle ? 4 * std::abs(expected[row].value) * std::numeric_limits<T>::epsilon() : 0.0;
      ASSERT_TRUE(result == expected[row].value || std::abs(result - expected[row].value) <= ulps)
          << name << "(" << x[i] << ", " << y[i] << "): " << result << ", expected " << expected[row].value;
    }
  }
}

TEST_F(Functors, OfFloatsGiveTheCpusValues) {
  for (const int n : kSizes) expect_the_same<float>("functors_float", n);
}

TEST_F(Functors, OfDoublesGiveTheCpusValues) {
  for (const int n : kSizes) expect_the_same<double>("functors_double", n);
}

}  // namespace
}  // namespace hindcast::tests::cuda
