// Which ops become one kernel.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "codegen/cpu/source.h"
#include "tests/codegen/fuse/captured_groups.h"

namespace hindcast::tests {
namespace {

using codegen::Group;
using codegen::Schedule;

std::vector<size_t> sizes_of(const std::vector<Group>& groups) {
  std::vector<size_t> sizes;
  for (const Group& group : groups) sizes.push_back(group.members.size());
  return sizes;
}

at::Tensor leaf_of(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

TEST(Fuse, AChainIsOneKernelWithOneResult) {
  const auto groups = groups_of([] { leaf_of({8}).mul(2).tanh().sigmoid().sum().backward(); });
  ASSERT_EQ(sizes_of(groups), std::vector<size_t>{3});
  EXPECT_EQ(groups[0].stores.size(), 1U);
  EXPECT_EQ(groups[0].loads.size(), 3U);  // the broadcast gradient of the root, and the saved tensors of tanh and sigmoid
  EXPECT_EQ(groups[0].body.scalars, 1U);
  EXPECT_EQ(groups[0].stopped, "the end of the graph");
}

TEST(Fuse, WhatReadsAMatrixProductJoinsIt) {
  const auto groups = groups_of([] { at::mm(leaf_of({4, 4}).mul(2).tanh(), leaf_of({4, 4})).sigmoid().mul(3).sum().backward(); });
  EXPECT_EQ(sizes_of(groups), (std::vector<size_t>{2, 1, 3}));
  EXPECT_FALSE(groups[0].body.product);
  EXPECT_TRUE(groups[1].body.product);
  EXPECT_TRUE(groups[2].body.product);
}

TEST(Fuse, AMatrixProductOfShortFloatsStandsBetweenTwo) {
  const auto leaf = [] { return at::randn({4, 4}, at::kBFloat16).set_requires_grad(true); };
  const auto groups = groups_of([&] { at::mm(leaf().mul(2).tanh(), leaf()).sigmoid().mul(3).sum().backward(); });
  EXPECT_EQ(sizes_of(groups), (std::vector<size_t>{2, 2}));
}

TEST(Fuse, SmallIndependentOpsShareAKernel) {
  const auto backward = [](int64_t n) { return [n] { (leaf_of({n}).mul(2).tanh().sum() + leaf_of({n}).mul(3).tanh().sum()).backward(); }; };
  EXPECT_EQ(sizes_of(groups_of(backward(64))), std::vector<size_t>{4});
  EXPECT_EQ(sizes_of(groups_of(backward(100000))), (std::vector<size_t>{2, 2}));
}

// Each node brings a cosine of its saved tensor, and its product with the gradient; the first needs no product. All saved tensors exist
// from the start.
TEST(Fuse, AChainOfLargeOnesIsOneKernel) {
  const auto backward = [](int nodes) {
    return [nodes] {
      auto x = leaf_of({1 << 20});
      for (int i = 0; i < nodes; ++i) x = x.sin();
      x.sum().backward();
    };
  };
  EXPECT_EQ(sizes_of(groups_of(backward(6))), std::vector<size_t>{12});
  // At most as many tensors as are read at full speed.
  const auto groups = groups_of(backward(30));
  EXPECT_GE(groups.size(), 3U);
  for (const Group& group : groups) EXPECT_LE(group.loads.size(), 13U);
}

TEST(Fuse, AnglesOfAllTypes) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto backward = [type] {
      const auto x = at::randn({8}, type).set_requires_grad(true);
      (x.sin() + x.cos() + x.tan()).sum().backward();
    };
    EXPECT_EQ(groups_of(backward).size(), 1U) << type;
  }
}

// The gradient of tanh is available before the product that it is added to.
TEST(Fuse, LargeOperandsDoNotWait) {
  const auto backward = [](int64_t n) {
    return [n] {
      const auto x = leaf_of({n, n});
      const auto product = at::mm(x, at::eye(n)).sum(), tangent = x.tanh().sum();  // the younger node runs first
      (product + tangent).backward();
    };
  };
  EXPECT_EQ(sizes_of(groups_of(backward(16))), std::vector<size_t>{2});
  for (const size_t members : sizes_of(groups_of(backward(1024)))) EXPECT_EQ(members, 1U);
}

TEST(Fuse, AHookIsABoundary) {
  const auto groups = groups_of([] {
    const auto y = leaf_of({8}).mul(2).tanh();
    y.register_hook([](const at::Tensor&) {});
    y.sigmoid().mul(3).sum().backward();
  });
  EXPECT_EQ(sizes_of(groups), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(groups[0].stopped, "a boundary");
}

TEST(Fuse, EqualChainsHaveEqualBodies) {
  const auto chain = [](int64_t n, double scale) { return groups_of([=] { leaf_of({n, 3}).mul(scale).tanh().sum().backward(); }); };
  EXPECT_EQ(chain(4, 0.5).at(0).body, chain(9, 7).at(0).body);
}

TEST(Fuse, OpsThatNoKernelComputesStayAlone) {
  EXPECT_TRUE(groups_of([] { leaf_of({8}).cumsum(0).sum().backward(); }).empty());
  EXPECT_TRUE(groups_of([] { leaf_of({5000}).mul(2).sum().backward(); }).empty());                       // one op: ATen's kernel is as fast
  EXPECT_EQ(sizes_of(groups_of([] { leaf_of({8}).mul(2).sum().backward(); })), std::vector<size_t>{1});  // but not for few elements
  EXPECT_TRUE(groups_of([] { leaf_of({5000}).to(at::kComplexFloat).sin().sum().backward(at::ones({}, at::kComplexFloat)); }).empty());
}

TEST(Fuse, ComplexNumbersAndRealOnesAreTwoKernels) {
  const auto groups = groups_of([] {
    const auto x = leaf_of({8});
    (at::complex(x.tanh().mul(2), x) * 3).tanh().sum().backward(at::ones({}, at::kComplexFloat));
  });
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].body.compute, at::kComplexFloat);
  EXPECT_EQ(groups[1].body.compute, at::kFloat);
}

TEST(Source, IsASkeletonOverABody) {
  codegen::Body body;
  body.loads = {{at::kFloat, codegen::AccessPattern::Broadcast}, {at::kFloat, codegen::AccessPattern::Dense}};
  body.scalars = 1;
  using codegen::Operand;
  body.ops = {{"tanh_backward", {{Operand::Kind::Load, 0}, {Operand::Kind::Load, 1}}},
              {"mul", {{Operand::Kind::Result, 0}, {Operand::Kind::Scalar, 0}}}};
  body.stores = {{{Operand::Kind::Result, 1}}};
  EXPECT_EQ(codegen::cpu::source_of(body), R"(#include "codegen/device/skeletons/cpu/dense.h"
using namespace hindcast::device;
using namespace hindcast::device::cpu;

struct Body {
  using Compute = float;
  using Real = float;
  using Loads = Types<Load<float, Along::Broadcast>, Load<float>>;
  using Stores = Types<Store<float>>;
  static constexpr int kScalars = 1;
  struct Row {
    float s0;
    float x0;
  };
  template <class At>
  static HC_DEVICE_MEMBER void begin(Row& row, const At& at) {
    const float s0 = at.scalar(0);
    row.s0 = s0;
    const float x0 = at.load(Index<0>());
    row.x0 = x0;
  }
  template <class At>
  static HC_DEVICE_MEMBER void element(const Row& row, const At& at) {
    const auto x0 = row.x0;
    const auto s0 = row.s0;
    const float x1 = at.load(Index<1>());
    const float v0 = tanh_backward<float>(x0, x1);
    const float v1 = mul<float>(v0, s0);
    at.store(Index<0>(), v1);
  }
  static constexpr AnglesToCheck kAnglesToCheck = AnglesToCheck::None;
};

extern "C" void dense(const LoopArguments& arguments) { run_dense<Body>(arguments); }
)");
}

}  // namespace
}  // namespace hindcast::tests
