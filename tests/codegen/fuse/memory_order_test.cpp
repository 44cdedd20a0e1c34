// Kernels of tensors that are dense, but not in the order of their dims.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/codegen/cpu/near_grads.h"
#include "tests/codegen/fuse/captured_groups.h"

namespace hindcast::tests {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor last_leaf(at::IntArrayRef sizes, at::TensorOptions options) {
  return at::randn(sizes).to(options.dtype()).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
}

// The gradient of a per-channel factor.
TEST(MemoryOrder, ASumOverImagesSharesItsExpressionsKernel) {
  const auto groups = groups_of([] {
    const auto x = last_leaf({4, 32, 5, 7}, at::kFloat), scale = at::randn({32, 1, 1}).set_requires_grad(true);
    (x * scale).sin().sum().backward();
  });
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_TRUE(groups[0].body.by_rows);
  EXPECT_EQ(groups[0].orders[0], (std::vector<uint8_t>{0, 2, 3, 1})) << "the image's gradient";
  const bool has_sum = std::any_of(groups[0].body.stores.begin(), groups[0].body.stores.end(),
                                   [](const codegen::BodyStore& store) { return store.extent == codegen::Extent::Columns; });
  EXPECT_TRUE(has_sum);
}

// If all dims have one size, sizes do not distinguish the orders.
class EqualDims : public testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(EqualDims, OrdersAreKeptApart) {
  expect_near_grads([](at::TensorOptions options) {
    const auto& sizes = GetParam();
    const auto x = near_leaf(sizes, options), y = last_leaf(sizes, options), z = near_leaf({sizes[1], 1, 1}, options);
    const auto product = x.sigmoid() * y, other = (y * x).sin();
    const bool can_turn = std::equal(sizes.begin() + 1, sizes.end(), sizes.begin());
    const auto turned = can_turn ? product.permute({0, 2, 3, 1}) * y + other.transpose(1, 3).tanh() : product;
    (turned * z + product * z + other).square().sum().backward();
    return Tensors{x.grad(), y.grad(), z.grad()};
  });
}

TEST_P(EqualDims, SumsAreOverTheirOwnDims) {
  expect_near_grads([](at::TensorOptions options) {
    const auto& sizes = GetParam();
    const auto x = near_leaf(sizes, options), y = last_leaf(sizes, options);
    at::Tensor sum = (x * y).sum();
    for (int64_t dim = 0; dim < 4; ++dim) {
      std::vector<int64_t> size(4, 1);
      size[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(dim)];
      const auto factor = at::linspace(0.5, 2, size[static_cast<size_t>(dim)], options).view(size).set_requires_grad(true);
      sum = sum + ((y * factor).sin() * (x * factor)).sum();
      (y.detach() * factor).tanh().sum().backward();
      sum = sum + factor.grad().sum();
    }
    sum.backward();
    return Tensors{x.grad(), y.grad()};
  });
}

// Gradients of factors along one dim or two, of tensors in each order.
TEST_P(EqualDims, GradientsOfFactors) {
  std::vector<int64_t> order = {0, 1, 2, 3};
  do {
    SCOPED_TRACE(at::IntArrayRef(order));
    expect_near_grads(
        [&](at::TensorOptions options) {
          std::vector<int64_t> sizes(4), back(4);
          for (size_t i = 0; i < 4; ++i) sizes[i] = GetParam()[static_cast<size_t>(order[i])];
          for (size_t i = 0; i < 4; ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
          const auto x = at::randn(sizes).to(options.dtype()).permute(back).detach().set_requires_grad(true);
          Tensors leaves = {x};
          at::Tensor y = x.sin();
          for (uint32_t kept = 0; kept < 16; kept += 3) {
            std::vector<int64_t> size(4, 1);
            for (size_t dim = 0; dim < 4; ++dim) size[dim] = (kept >> dim & 1) != 0 ? GetParam()[dim] : 1;
            leaves.push_back(near_leaf(size, options));
            y = y * leaves.back();
          }
          y.square().sum().backward();
          Tensors gradients;
          for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
          return gradients;
        },
        {.fused_graphs = 0, .units_in_double = 64});  // with a dim of size 1 the order is unknown
  } while (std::next_permutation(order.begin(), order.end()));
}

INSTANTIATE_TEST_SUITE_P(Of, EqualDims,
                         testing::Values(std::vector<int64_t>{6, 6, 6, 6}, std::vector<int64_t>{2, 16, 16, 16},
                                         std::vector<int64_t>{3, 36, 6, 6}, std::vector<int64_t>{2, 6, 1, 6},
                                         std::vector<int64_t>{1, 16, 4, 4}, std::vector<int64_t>{5, 17, 3, 2}));

}  // namespace
}  // namespace hindcast::tests
