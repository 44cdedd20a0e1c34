// The process's table of kernels keeps those that somebody holds, and drops the others eventually.

#include "codegen/cpu/kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "hindcast/hindcast.h"

namespace hindcast::tests {
namespace {

TEST(KernelTable, ForgetsWhatNobodyHolds) {
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.cache_size = 4;
  const auto guard = hindcast::enable(options);
  for (uint32_t structure = 0; structure < 150; ++structure) {  // a kernel each: all bodies differ
    const auto x = at::ones({2}).set_requires_grad(true);
    auto y = x;
    for (uint32_t bit = 0; bit < 8; ++bit) y = structure >> bit & 1 ? y * y : y + x;
    y.sum().backward();
  }
  EXPECT_GT(hindcast::stats().fused_graphs, 100U);
  EXPECT_LE(codegen::cpu::known_kernels(), 64U);
}

}  // namespace
}  // namespace hindcast::tests
