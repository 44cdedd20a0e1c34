#include "tests/codegen/cpu/near_grads.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace hindcast::tests {
namespace {

std::vector<at::Tensor> run(const TypedProgram& program, at::ScalarType type, uint64_t seed) {
  at::manual_seed(seed);
  return program(at::TensorOptions(type));
}

double unit_of(at::ScalarType type) {
  return type == at::kFloat ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

void expect_near(const at::Tensor& stock, const at::Tensor& ours, const at::Tensor& truth, int units, const std::string& what) {
  ASSERT_EQ(stock.defined(), ours.defined()) << what;
  if (!stock.defined()) return;
  EXPECT_EQ(stock.scalar_type(), ours.scalar_type()) << what;
  EXPECT_EQ(stock.sizes(), ours.sizes()) << what;
  EXPECT_EQ(stock.strides(), ours.strides()) << what;
  if (stock.numel() == 0) return;
  if (stock.is_complex()) {
    const auto parts = [](const at::Tensor& tensor) { return at::view_as_real(tensor.resolve_conj()); };
    return expect_near(parts(stock), parts(ours), parts(truth), units, what);
  }
  const at::Tensor exact = truth.to(at::kDouble);
  const at::Tensor finite = exact.isfinite();
  EXPECT_TRUE(at::equal(stock.to(at::kDouble).masked_fill(finite, 0).nan_to_num(7, 8, 9),
                        ours.to(at::kDouble).masked_fill(finite, 0).nan_to_num(7, 8, 9)))
      << what << ": infinities and NaN";
  const auto error = [&](const at::Tensor& result) {
    return (result.to(at::kDouble) - exact).masked_fill(finite.logical_not(), 0).abs().max().item<double>();
  };
  const double scale = exact.masked_fill(finite.logical_not(), 0).abs().max().item<double>();
  EXPECT_LE(error(ours), 2 * error(stock) + units * unit_of(stock.scalar_type()) * scale) << what << ": stock is off by " << error(stock);
}

}  // namespace

Options fused_options() {
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  return options;
}

at::Tensor near_leaf(at::IntArrayRef sizes, at::TensorOptions options) {
  return at::randn(sizes).to(options.dtype()).set_requires_grad(true);
}

void expect_near_grads(const TypedProgram& program, NearGrads expected) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    hindcast::reset();
    for (int step = 0; step < expected.steps; ++step) {
      const auto seed = static_cast<uint64_t>(step + 1);
      const auto stock = run(program, type, seed);
      const auto truth = run(program, at::kDouble, seed);
      std::vector<at::Tensor> ours;
      {
        const auto guard = hindcast::enable(fused_options());
        ours = run(program, type, seed);
      }
      ASSERT_EQ(stock.size(), ours.size());
      for (size_t i = 0; i < stock.size(); ++i) {
        expect_near(stock[i], ours[i], type == at::kDouble ? stock[i] : truth[i], type == at::kDouble ? expected.units_in_double : 4,
                    std::string(c10::toString(type)) + ", step " + std::to_string(step) + ", result " + std::to_string(i));
      }
    }
    const Stats stats = hindcast::stats();
    EXPECT_GE(stats.fused_graphs, expected.fused_graphs);
    EXPECT_EQ(stats.compiler_failures, 0U);
    EXPECT_GE(stats.hits + expected.misses, static_cast<uint64_t>(expected.steps)) << stats;
  }
}

}  // namespace hindcast::tests
