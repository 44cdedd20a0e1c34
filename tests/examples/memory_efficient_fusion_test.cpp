// The use of memory_efficient_fusion() that xFormers shows: a number among the arguments, and a layer norm.

#include <hindcast/aot.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

namespace hindcast::tests::memory_efficient_fusion_test {
namespace {

at::Tensor fn(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, int64_t norm_axis) {
  const at::Tensor x = a + b;
  return at::layer_norm(x, {x.size(norm_axis)}) + c;
}

TEST(MemoryEfficientFusion, GivesTheFunctionsResultAndGradients) {
  const auto compiled = memory_efficient_fusion(fn, {3});
  for (const int64_t batch : {2, 2, 5, 2, 7}) {
    std::vector<at::Tensor> own, others;
    for (int i = 0; i < 3; ++i) {
      own.push_back(at::randn({batch, 4, 8}).set_requires_grad(true));
      others.push_back(own.back().detach().clone().set_requires_grad(true));
    }
    const at::Tensor weight = at::randn({batch, 4, 8});
    const at::Tensor expected = fn(own[0], own[1], own[2], 2), given = compiled(others[0], others[1], others[2], int64_t{2});
    (expected * weight).sum().backward();
    (given * weight).sum().backward();
    EXPECT_TRUE(at::allclose(given, expected, 1e-5, 1e-6));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(others[i].grad(), own[i].grad(), 1e-5, 1e-6)) << "batch " << batch << ", " << i;
  }
}

TEST(MemoryEfficientFusion, AnotherNumberIsAnotherProgram) {
  const auto compiled = memory_efficient_fusion(fn, {3});
  const at::Tensor x = at::randn({4, 4, 4});
  for (const int64_t axis : {0, 1, 2, 0, 1, 2}) EXPECT_TRUE(at::allclose(compiled(x, x, x, axis), fn(x, x, x, axis), 1e-5, 1e-6));
  EXPECT_EQ(compiled.stats().traces, 3U);
  EXPECT_EQ(compiled.stats().hits, 3U);
}

}  // namespace
}  // namespace hindcast::tests::memory_efficient_fusion_test
