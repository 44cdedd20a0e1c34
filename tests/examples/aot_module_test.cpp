// ResNet-18 as a compiled module, compared with itself: training, batches of other sizes, and evaluation.

#include "examples/resnet18.h"

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>

#include <sstream>

namespace hindcast::tests {
namespace {

ResNet18 copy_of(const ResNet18& net) {
  std::stringstream bytes;
  torch::save(net, bytes);
  ResNet18 copy(10);
  torch::load(copy, bytes);
  return copy;
}

// The stock engine's bits, including statistics; SGD carries any difference of a gradient into all later ones.
TEST(AotModule, ResNet18TrainsToTheBit) {
  torch::manual_seed(0);
  const ResNet18 first(10);
  ResNet18 eager = copy_of(first), ahead = copy_of(first);
  AotOptions options;
  options.fw_compiler = options.bw_compiler = compilers::eager();
  const auto compiled = aot_module(ahead, options);
  torch::optim::SGD of_eager(eager->parameters(), 0.01), of_ahead(ahead->parameters(), 0.01);
  for (const int64_t batch : {2, 2, 3, 4, 3}) {
    const auto images = torch::randn({batch, 3, 32, 32});
    const auto labels = torch::randint(10, {batch});
    of_eager.zero_grad();
    of_ahead.zero_grad();
    torch::cross_entropy_loss(eager->forward(images), labels).backward();
    torch::cross_entropy_loss(compiled(images), labels).backward();
    of_eager.step();
    of_ahead.step();
  }
  EXPECT_GE(compiled.stats().hits, 2U);
  const auto parameters = eager->named_parameters(), buffers = eager->named_buffers();
  for (const auto& item : ahead->named_parameters()) EXPECT_TRUE(item.value().equal(parameters[item.key()])) << item.key();
  for (const auto& item : ahead->named_buffers()) EXPECT_TRUE(item.value().equal(buffers[item.key()])) << item.key();

  eager->eval();
  ahead->eval();
  const torch::NoGradGuard no_grad;
  const auto images = torch::randn({2, 3, 32, 32});
  for (int call = 0; call < 2; ++call) EXPECT_TRUE(compiled(images).equal(eager->forward(images)));
}

}  // namespace
}  // namespace hindcast::tests
