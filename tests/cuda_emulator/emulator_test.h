#pragma once
// A test that runs kernels; skipped if they cannot be compiled.

#include <gtest/gtest.h>

#include <random>

#include "tests/cuda_emulator/kernel_files.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/cuda_emulator/runtime/launch.h"
#include "tests/cuda_emulator/runtime/memory.h"

namespace hindcast::tests::cuda {

class EmulatorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// A kernel of one of kKernelFiles.
inline const Kernel& kernel_of(const std::string& file, const std::string& name) {
  for (const KernelFile& known : kKernelFiles) {
    if (known.name == file) return compile(text_of(file), known.kernels).kernel(name);
  }
  throw std::runtime_error("no kernels " + file);
}

/// Enough blocks for `count`, and at least one, as a grid needs.
inline uint32_t blocks_for(uint64_t count, uint64_t per_block) { return count == 0 ? 1 : uint32_t((count + per_block - 1) / per_block); }

template <class T>
std::vector<T> random_values(size_t count, double low, double high) {
  std::mt19937 generator(count + 1);
  std::uniform_real_distribution<double> numbers(low, high);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(numbers(generator));
  return values;
}

inline constexpr int kSizes[] = {0, 1, 31, 33, 1023, 4096};

}  // namespace hindcast::tests::cuda
