// Correct kernels: their values, and that the emulator reports no error.

#include "tests/cuda_emulator/emulator_test.h"

namespace hindcast::tests::cuda {
namespace {

class PointwiseKernel : public EmulatorTest {};

TEST_F(PointwiseKernel, TakesFourElementsAtATimeAndATail) {
  for (const int n : kSizes) {
    const auto a = random_values<float>(n, -3, 3), b = random_values<float>(n, -1, 5);
    DeviceArray<float> in(a), other(b), out(n);
    launch_with(kernel_of("pointwise", "by_fours"), {{blocks_for(n, 512)}, {128}}, in.data(), other.data(), out.data(), 2.5f, n);
    const auto values = out.values();
    for (int i = 0; i < n; ++i) ASSERT_EQ(values[i], a[i] * 2.5f + b[i]) << i << " of " << n;
  }
}

TEST_F(PointwiseKernel, StridesOverTheGrid) {
  for (const int n : kSizes) {
    const auto a = random_values<double>(n, -3, 3);
    DeviceArray<double> in(a), out(n);
    launch_with(kernel_of("pointwise", "by_grid"), {{3}, {64}}, in.data(), out.data(), (long long)n);
    const auto values = out.values();
    for (int i = 0; i < n; ++i) ASSERT_EQ(values[i], a[i] * a[i]) << i << " of " << n;
  }
}

TEST_F(PointwiseKernel, WorksInPlaceOnBytes) {
  for (const int n : kSizes) {
    const auto bytes = random_values<unsigned char>(n, 0, 255);
    DeviceArray<unsigned char> data(bytes);
    launch_with(kernel_of("pointwise", "flip_bytes"), {{blocks_for(n, 512)}, {32}}, data.data(), n);
    const auto values = data.values();
    for (int i = 0; i < n; ++i) ASSERT_EQ(values[i], static_cast<unsigned char>(~bytes[i])) << i << " of " << n;
  }
}

TEST_F(PointwiseKernel, MayReadInTheNextLaunchWhatItWroteInTheLast) {
  DeviceArray<double> numbers(std::vector<double>(1000, 3.0)), squares(1000), fourth_powers(1000);
  const Kernel& kernel = kernel_of("pointwise", "by_grid");
  launch_with(kernel, {{3}, {64}}, numbers.data(), squares.data(), 1000LL);
  launch_with(kernel, {{2}, {96}}, squares.data(), fourth_powers.data(), 1000LL);
  EXPECT_EQ(fourth_powers.values(), std::vector<double>(1000, 81.0));
}

}  // namespace
}  // namespace hindcast::tests::cuda
