// Sums that leaves add to their existing gradients: the kernel adds where it stores its result, without a call of ATen's.

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/cuda_emulator/runtime/compile.h"

namespace hindcast::tests::cuda {
namespace {

using at::Tensor;
using testing::ElementsAre;

uint64_t adds = 0;

/// Calls of add_ while it lives.
class CountedAdds {
 public:
  CountedAdds() {
    adds = 0;
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
          if (std::string_view(call.name()) == "aten::add_") ++adds;
          return nullptr;
        }));
  }
  ~CountedAdds() { at::removeCallback(handle_); }
  CountedAdds(const CountedAdds&) = delete;
  CountedAdds& operator=(const CountedAdds&) = delete;

 private:
  at::CallbackHandle handle_;
};

struct Program {
  std::vector<Tensor> leaves;
  std::function<Tensor()> forward;
};

class LeafSums : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(1);
    hindcast::reset();
  }

  /// The third backward's calls of add_; gradients add up over all three.
  static uint64_t adds_of(const Program& program) {
    const Tensor incoming = at::randn_like(program.forward());
    std::vector<Tensor> first, expected;
    for (const Tensor& leaf : program.leaves) {
      first.push_back(at::randn_like(leaf));
      leaf.mutable_grad() = first.back().clone();
    }
    for (int step = 0; step < 3; ++step) program.forward().backward(incoming);
    for (size_t i = 0; i < first.size(); ++i) {
      expected.push_back(program.leaves[i].grad());
      program.leaves[i].mutable_grad() = first[i];
    }
    Options options;
    options.compiler = compilers::fused();
    options.async = false;
    options.verify = true;  // kernels add to gradients in the check too
    hindcast::reset();
    const CostsOfACard costs;
    const Guard guard = enable(options);
    uint64_t seen = 0;
    for (int step = 0; step < 3; ++step) {
      const Tensor root = program.forward();
      take_launched();
      const CountedAdds counted;
      root.backward(incoming);
      seen = adds;
    }
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(program.leaves[i].grad().is_same(first[i])) << i;
      EXPECT_TRUE(at::allclose(first[i], expected[i], 1e-4, 1e-4)) << i;
    }
    EXPECT_GT(stats().fused_graphs, 0U);
    EXPECT_EQ(stats().compiler_failures + stats().refused_graphs, 0U) << report();
    return seen;
  }
};

Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

TEST_F(LeafSums, OfColumnsOfFewRows) {
  for (const int64_t columns : {64, 20000}) {
    const Tensor x = at::randn({24, columns}), bias = leaf({columns});
    EXPECT_EQ(adds_of({{bias}, [=] { return at::gelu(x + bias); }}), 0U);
    EXPECT_THAT(take_launched(), ElementsAre(columns == 64 ? "rows_each" : "rows"));
  }
}

TEST_F(LeafSums, OfColumnsInSlices) {
  for (const int64_t columns : {64, 33}) {
    const Tensor x = at::randn({3000, columns}), bias = leaf({columns});
    EXPECT_EQ(adds_of({{bias}, [=] { return at::gelu(x + bias); }}), 0U);
    EXPECT_THAT(take_launched(), ElementsAre(columns == 64 ? "rows" : "rows_each", "merge_slices"));
  }
}

TEST_F(LeafSums, OfAnotherShape) {
  const Tensor x = at::randn({24, 64}), bias = leaf({1, 64});
  EXPECT_EQ(adds_of({{bias}, [=] { return at::gelu(x + bias); }}), 0U);
}

TEST_F(LeafSums, OfRows) {
  const Tensor x = at::randn({24, 64}), factor = leaf({24, 1});
  EXPECT_EQ(adds_of({{factor}, [=] { return (x * factor).tanh(); }}), 0U);
}

TEST_F(LeafSums, OfLongRows) {
  const Tensor x = at::randn({9, 20000}), factor = leaf({9, 1});
  EXPECT_EQ(adds_of({{factor}, [=] { return (x * factor).tanh(); }}), 0U);
}

TEST_F(LeafSums, OfANormsWeights) {
  const Tensor x = leaf({600, 64}), weight = leaf({64}), bias = leaf({64});
  EXPECT_LE(adds_of({{x, weight, bias}, [=] { return at::layer_norm(x, {64}, weight, bias); }}), 1U);  // of x, which is small
}

// Leaves that get incoming gradients unchanged: kernels that read those write the copies, unless user code runs in between.
TEST_F(LeafSums, AndWhatComesIn) {
  for (const bool has_hook : {false, true}) {
    const auto gradients = [&] {
      at::manual_seed(1);
      const std::vector<Tensor> leaves = {leaf({64, 64}), leaf({64, 64}), leaf({64, 64}), leaf({64, 64}), leaf({64, 64})};
      if (has_hook) leaves[1].register_hook([](const Tensor& gradient) { gradient.mul_(2); });
      const Tensor x = leaves[0].tanh(), first = at::randn({64, 64}), second = at::randn({64, 64});
      torch::autograd::backward({(x + leaves[1]) + leaves[2], x + leaves[3].tanh() + leaves[4]}, {first, second});
      std::vector<Tensor> all;
      for (const Tensor& one : leaves) all.push_back(one.grad());
      return all;
    };
    const std::vector<Tensor> stock = gradients();
    Options options;
    options.compiler = compilers::fused();
    options.async = false;
    hindcast::reset();
    const CostsOfACard costs;
    const Guard guard = enable(options);
    for (int step = 0; step < 3; ++step) {
      const std::vector<Tensor> ours = gradients();
      for (size_t i = 0; i < stock.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], stock[i], 1e-5, 1e-5)) << has_hook << step << i;
    }
  }
}

// Others read the sum too: it stays unchanged and does not become the gradient that it was added to.
TEST_F(LeafSums, ThatOthersRead) {
  const Tensor x = at::randn({24, 64}), a = leaf({64}), c = leaf({64}), d = leaf({64});
  adds_of({{a, c, d}, [=] { return at::gelu(x + (a + c * d)); }});
  adds_of({{a, c, d}, [=] { return at::gelu(x + (a.view({1, 64}) + c * d)); }});
  const Tensor square = leaf({8, 8}), w = leaf({64, 64}), row = leaf({1, 64});
  adds_of({{square, c, d}, [=] { return at::gelu(x + (square.view({64}) + c * d)); }});
  adds_of({{a, row, w}, [=] { return at::gelu(x + (a.view({1, 64}) + at::mm(row, w))); }});
  const Tensor of_rows = leaf({24}), factor = leaf({24, 1}), more = leaf({24, 1});
  adds_of({{of_rows, factor, more}, [=] { return (x * (of_rows.view({24, 1}) + factor * more)).tanh(); }});
}

// One sum for two leaves: each adds it itself.
TEST_F(LeafSums, OfTwoLeaves) {
  const Tensor x = at::randn({24, 64}), a = leaf({64}), b = leaf({64});
  EXPECT_EQ(adds_of({{a, b}, [=] { return at::gelu(x + (a + b)); }}), 2U);
}

// Large enough for the kernel to write it, and not a single loop.
TEST_F(LeafSums, OfANestsElements) {
  const Tensor factor = at::randn({1024}), odd = at::randn({1023});
  for (const Tensor& other : {factor, odd}) {
    const Tensor x = leaf({1100, other.size(0)});
    EXPECT_EQ(adds_of({{x}, [=] { return (x * other).tanh(); }}), 0U);
    EXPECT_THAT(take_launched(), ElementsAre(other.is_same(factor) ? "nest" : "nest_each"));
  }
  const Tensor turned = at::randn({1024, 1100}).t(), x = leaf({1100, 1024});
  EXPECT_EQ(adds_of({{x}, [=] { return (x * turned).tanh(); }}), 0U);
  EXPECT_THAT(take_launched(), ElementsAre("tiles"));
}

}  // namespace
}  // namespace hindcast::tests::cuda
