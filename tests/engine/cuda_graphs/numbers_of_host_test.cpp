// Numbers of the host next to tensors of a card, as Python's `x * 0.5` saves them: kernels read them as scalars.

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>

#include <functional>

#include "codegen/fuse/fuse.h"
#include "codegen/kernel/backend.h"
#include "tests/codegen/fuse/captured_groups.h"
#include "tests/engine/cuda_graphs/fake_card.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

using at::Tensor;

Tensor number(double value) { return at::native::wrapped_scalar_tensor(value); }
Tensor number(int64_t value) { return at::native::wrapped_scalar_tensor(value); }

class NumbersOfTheHost : public ::testing::Test {
 protected:
  void SetUp() override { install_fake_card(); }
  void TearDown() override {
    reset();
    EXPECT_EQ(take_unordered(), std::vector<std::string>());
  }

  using Program = std::function<Tensor(const Tensor&)>;

  static std::vector<codegen::Group> groups(const Program& program) {
    const auto graph = captured_graph([&] { program(leaf(1, fake(), {4, 6})).sum().backward(); });
    return codegen::fuse(*graph, codegen::backend_of(at::kPrivateUse1)->cost_model()).groups;
  }

  /// Each step has other values. `verify`: compares each kernel with ATen.
  static void expect_near_stock(const Program& program, at::ScalarType type = at::kFloat) {
    hindcast::reset();
    for (uint64_t step = 1; step < 4; ++step) {
      const auto grad = [&](at::Device device, at::ScalarType as) {
        const Tensor x = leaf(step, at::kCPU, {4, 6}).detach().to(type).to(as).to(device).requires_grad_();
        program(x).sum().backward();
        return to_cpu(x.grad()).to(at::kDouble);
      };
      const Tensor exact = grad(at::kCPU, at::kDouble);
      const Options options{.compiler = compilers::fused(), .async = false, .verify = type != at::kHalf};
      const auto guard = enable(options);
      const Tensor ours = grad(fake(), type);
      const double unit = type == at::kHalf ? 1e-3 : 1e-6;
      EXPECT_LE((ours - exact).abs().max().item<double>(), 8 * unit * exact.abs().max().item<double>());
    }
    const Stats counts = stats();
    EXPECT_GE(counts.fused_graphs, 1U) << counts;
    EXPECT_EQ(counts.compiler_failures + counts.refused_graphs, 0U) << counts;
  }
};

TEST_F(NumbersOfTheHost, AreScalarsOfOneKernel) {
  const auto found = groups([](const Tensor& x) { return ((x * number(0.7)).sin() / number(int64_t{3})).tanh() * number(0.7); });
  ASSERT_EQ(found.size(), 1U);
  const codegen::Group& group = found[0];
  size_t numbers = 0;
  for (const codegen::GroupScalar& scalar : group.scalars) numbers += scalar.number.defined() ? 1 : 0;
  EXPECT_GE(numbers, 2U);
  EXPECT_GE(group.unread.size(), numbers);
}

TEST_F(NumbersOfTheHost, GradientsAreTheStockEngines) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf}) {
    expect_near_stock([](const Tensor& x) { return ((x * number(0.7)).sin() / number(int64_t{3})).tanh() * number(1.1); }, type);
    expect_near_stock([](const Tensor& x) { return at::pow(x.sigmoid(), number(2.5)) * x; }, type);
    expect_near_stock([](const Tensor& x) { return at::where(x > 0, x * number(-0.0), x.exp() * number(2.0)); }, type);
  }
}

// Of another dtype than the tensor, and not wrapped by Python: type promotion treats it like a number.
TEST_F(NumbersOfTheHost, TensorsOfNoDims) {
  expect_near_stock([](const Tensor& x) { return (x * at::scalar_tensor(0.7, at::kDouble)).sin() * at::scalar_tensor(3, at::kLong); });
  expect_near_stock([](const Tensor& x) { return (x.sum() * number(0.5)).sin() * x; });
}

// Different numbers each time, the same structure.
TEST_F(NumbersOfTheHost, MayChange) {
  hindcast::reset();
  const Options options{.compiler = compilers::fused(), .async = false};
  for (int step = 0; step < 5; ++step) {
    const auto grad = [&] {
      const Tensor x = leaf(7, fake(), {4, 6});
      ((x * number(0.1 * step)).sin() * number(int64_t{step})).sum().backward();
      return to_cpu(x.grad());
    };
    const Tensor stock = grad();
    const auto guard = enable(options);
    EXPECT_TRUE(at::allclose(grad(), stock, 1e-5, 1e-6)) << step;
  }
  EXPECT_EQ(stats().unique_graphs, 1U);
}

// A number between the leaf and the loss changes after its graph was recorded.
TEST_F(NumbersOfTheHost, OfARecordingThatChange) {
  const CachedFakeMemory cached;
  const auto run = [](bool with_graphs) {
    std::vector<Tensor> grads;
    hindcast::reset();
    const Options options{.compiler = compilers::fused(), .async = false, .cuda_graphs = with_graphs};
    const auto guard = enable(options);
    const Tensor x = leaf(7, fake(), {4, 4}), w = leaf(8, fake(), {4, 4}).detach();
    for (int step = 0; step < 24; ++step) {
      x.mutable_grad().reset();
      Tensor y = x;
      for (int i = 0; i < 4; ++i) y = at::mm(y.tanh(), w) * number(step < 8 ? 0.5 : step < 16 ? -0.0 : 2);
      for (int i = 0; i < 4; ++i) y = at::mm(y.tanh(), w);
      y.sum().backward();
      grads.push_back(to_cpu(x.grad()));
    }
    return grads;
  };
  const auto expected = run(false), seen = run(true);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(first_difference(expected[i], seen[i]), "") << i;
  const Stats counts = stats();
  EXPECT_GE(counts.cuda_graphs, 2U) << counts;
  EXPECT_GT(counts.cuda_graph_launches, 12U) << counts;
  EXPECT_EQ(take_graph_errors(), std::vector<std::string>());
}

}  // namespace
}  // namespace hindcast::tests
