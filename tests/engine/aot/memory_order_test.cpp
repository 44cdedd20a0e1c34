// Programs in which a kernel reads one tensor in two orders.

#include <gtest/gtest.h>
#include <hindcast/aot.h>
#include <hindcast/hindcast.h>
#include <torch/torch.h>

#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

// The product's transpose is read as it lies for the sum, and as it is for the last result, by one kernel where it was small at capture.
// Where it is large, results take memory of operands.
TEST(MemoryOrderOfPrograms, NothingIsOverwrittenThatIsStillRead) {
  const auto function = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& z) {
    const at::Tensor x = a.bmm(b).transpose(0, 1), half = x * 0.5;
    return Tensors{half, half.sum(at::IntArrayRef({0, 1})), z + x};
  };
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::fused();
  options.async = false;
  const auto compiled = aot_function(function, options);
  const at::NoGradGuard no_grad;
  for (const int64_t n : {8, 8, 10, 12, 64, 100, 64}) {
    SCOPED_TRACE(n);
    const at::Tensor a = at::randn({n, n, 16}), b = at::randn({n, 16, 16}), z = at::randn({n, n, 16});
    const Tensors ours = compiled(a, b, z), expected = function(a, b, z);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(ours[i], expected[i], 1e-4, 1e-3)) << i << ": " << (ours[i] - expected[i]).abs().max();
  }
}

}  // namespace
}  // namespace hindcast::tests
