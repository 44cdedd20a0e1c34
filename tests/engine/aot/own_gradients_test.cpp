// Gradients of leaves: separate tensors, written by the kernel that computes them, possibly in the memory of a saved tensor.

#include <hindcast/aot.h>
#include <hindcast/hindcast.h>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>
#include <vector>

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kRows = 96, kColumns = 257;  // large enough for a copy to count as an op

at::Tensor fn(const Tensors& in) { return (in[0] + in[1]).tanh().cos() + in[2]; }

Tensors leaves(at::ScalarType type = at::kFloat) {
  Tensors made;
  for (int i = 0; i < 3; ++i) made.push_back(at::randn({kRows, kColumns}).to(type).set_requires_grad(true));
  return made;
}

struct Step {
  Tensors gradients;
  at::Tensor result;
};
template <class Function>
Step step(const Function& function, const Tensors& in, const at::Tensor& incoming, bool retains = false) {
  const at::Tensor result = function(in);
  for (int pass = 0; pass < (retains ? 2 : 1); ++pass) {
    for (const at::Tensor& leaf : in) leaf.mutable_grad() = at::Tensor();
    result.backward(incoming, /*retain_graph=*/retains && pass == 0);
  }
  Tensors gradients;
  for (const at::Tensor& leaf : in) gradients.push_back(leaf.grad());
  return {gradients, result};
}

auto compiled(Partition partition) {
  AotOptions options;
  options.partition = std::move(partition);
  options.async = false;
  return aot_function(fn, options);
}

class OwnGradients : public testing::TestWithParam<Partition> {};

TEST_P(OwnGradients, ShareNoMemoryWithAnything) {
  const auto function = compiled(GetParam());
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Tensors in = leaves(type);
    const at::Tensor incoming = at::randn({kRows, kColumns}).to(type), before = incoming.clone();
    const Step expected = step(fn, in, incoming);
    const double off = type == at::kBFloat16 ? 2e-2 : 1e-5;
    for (int call = 0; call < 3; ++call) {
      const Step given = step(function, in, incoming);
      std::set<const void*> seen = {incoming.const_data_ptr(), given.result.const_data_ptr()};
      for (size_t i = 0; i < in.size(); ++i) {
        EXPECT_TRUE(seen.insert(given.gradients[i].const_data_ptr()).second) << "gradient " << i;
        EXPECT_TRUE(at::allclose(given.gradients[i], expected.gradients[i], off, off)) << "gradient " << i;
      }
      EXPECT_TRUE(at::allclose(given.result, expected.result, off, off)) << "what the user holds is not written to";
      EXPECT_TRUE(incoming.equal(before));
    }
  }
}

TEST_P(OwnGradients, AreTheSameFromARetainedGraph) {
  const auto function = compiled(GetParam());
  const Tensors in = leaves();
  const at::Tensor incoming = at::randn({kRows, kColumns});
  const Step expected = step(fn, in, incoming);
  for (int call = 0; call < 3; ++call) {
    for (const bool guarded : {false, true}) {
      std::optional<Guard> guard;
      if (guarded) guard.emplace(enable());
      const Step given = step(function, in, incoming, /*retains=*/true);
      for (size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(at::allclose(given.gradients[i], expected.gradients[i], 1e-5, 1e-6));
    }
  }
}

TEST_P(OwnGradients, AddUpInGradientsThatAreThere) {
  const auto function = compiled(GetParam());
  const Tensors in = leaves();
  const at::Tensor incoming = at::randn({kRows, kColumns});
  const Step expected = step(fn, in, incoming);
  for (const at::Tensor& leaf : in) leaf.mutable_grad() = at::Tensor();
  for (int call = 0; call < 4; ++call) function(in).backward(incoming);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_TRUE(at::allclose(in[i].grad(), 4 * expected.gradients[i], 1e-5, 1e-5));
}

TEST_P(OwnGradients, ASecondBackwardIsRefused) {
  const auto function = compiled(GetParam());
  const Tensors in = leaves();
  const at::Tensor incoming = at::randn({kRows, kColumns});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor result = function(in);
    result.backward(incoming);
    EXPECT_THROW(result.backward(incoming), std::runtime_error) << "call " << call;
  }
}

INSTANTIATE_TEST_SUITE_P(Partitions, OwnGradients, testing::Values(partition::standard, partition::min_cut));

}  // namespace
}  // namespace hindcast::tests
