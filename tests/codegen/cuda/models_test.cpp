// The demo's models: their backwards in kernels for CUDA, compared with the stock engine's.

#include <gtest/gtest.h>

#include "examples/digits/models.h"
#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"
#include "tests/support/forward_program.h"

namespace hindcast::tests::cuda {
namespace {

Tensors gradients(const digits::Recipe& recipe, at::ScalarType type, int64_t batch) {
  torch::manual_seed(1);
  const auto model = recipe.make();
  const at::Tensor images = at::randn({batch, 1, 8, 8}).to(type), labels = at::randint(10, {batch}, at::kLong);
  model->to(type);
  at::cross_entropy_loss(model->forward(images), labels).backward();
  Tensors all;
  for (const at::Tensor& parameter : model->parameters()) all.push_back(parameter.grad());
  return all;
}

class Models : public testing::TestWithParam<digits::Recipe> {};

TEST_P(Models, GiveTheSameGradients) {
  if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  hindcast::reset();
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.verify = true;
  take_launched();
  for (const int64_t batch : {16, 9, 11, 11}) {
    SCOPED_TRACE(batch);
    const Tensors stock = gradients(GetParam(), at::kFloat, batch), truth = gradients(GetParam(), at::kDouble, batch);
    const auto guard = hindcast::enable(options);
    expect_near(gradients(GetParam(), at::kFloat, batch), stock, truth);
  }
  EXPECT_GT(hindcast::stats().hits, 0U);
  EXPECT_EQ(hindcast::stats().refused_graphs + hindcast::stats().compiler_failures, 0U);
  EXPECT_FALSE(take_launched().empty());
}

INSTANTIATE_TEST_SUITE_P(OfTheDemo, Models, testing::ValuesIn(digits::recipes()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hindcast::tests::cuda
