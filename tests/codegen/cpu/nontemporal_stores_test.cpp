// Results of 32 MiB and more, whose stores bypass the caches.

#include "codegen/cpu/nontemporal_stores.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/codegen/cpu/near_grads.h"

namespace hindcast::tests {
namespace {

using codegen::cpu::NontemporalStores;
using Tensors = std::vector<at::Tensor>;

// Partial cache lines at both ends; nothing beside them is written.
TEST(NontemporalStores, WriteWhatTheyAreGiven) {
  for (const int64_t width : {1, 2, 4, 8, 16}) {
    for (const int64_t elements : {1, 3, 16, 64, 100, 1000}) {
      for (const int64_t shift : {0, 1, 16, 60, 64, 100}) {
        std::vector<char> to(static_cast<size_t>(elements * width + 300), char(7));
        const size_t first = static_cast<size_t>(shift) + 64;
        char other = 0;
        NontemporalStores stores;
        stores.add(1, width);
        std::vector<char> expected = to;
        {
          NontemporalStores::Block block(stores, 1000);
          codegen::Pointers pointers{&other, to.data() + first};
          block.take_place_of(pointers);
          ASSERT_EQ(pointers[0], &other);
          std::iota(pointers[1], pointers[1] + elements * width, char(1));
          std::copy(pointers[1], pointers[1] + elements * width, expected.begin() + static_cast<std::ptrdiff_t>(first));
          block.write(elements);
        }
        EXPECT_EQ(to, expected) << elements << " of " << width << " at " << shift;
      }
    }
  }
}

TEST(NontemporalStores, OfPointwiseKernels) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({8 * 1024 * 1024 + 777}, options);
        (x.sigmoid() * 2).tanh().sum().backward();
        return Tensors{x.grad()};
      },
      {.steps = 2});
}

// One result for several leaves, with and without gradients.
TEST(NontemporalStores, ToLeaves) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({8200, 1029}, options), y = near_leaf({8200, 1029}, options), z = near_leaf({8200, 1029}, options);
        z.mutable_grad() = at::ones({8200, 1029}, options);
        (x + y + z).sigmoid().sum().backward();
        return Tensors{x.grad(), y.grad(), z.grad()};
      },
      {.steps = 2});
}

TEST(NontemporalStores, OfKernelsByRows) {
  for (const int64_t columns : {7, 1029}) {
    expect_near_grads(
        [&](at::TensorOptions options) {
          const int64_t rows = 9'000'000 / columns;
          const auto x = near_leaf({rows, columns}, options), y = near_leaf({rows, columns}, options), bias = near_leaf({columns}, options);
          at::softmax(x + y + bias, 1).square().sum().backward();
          return Tensors{x.grad(), y.grad(), bias.grad()};
        },
        {.steps = 2, .units_in_double = 64});  // sums over all rows
  }
}

}  // namespace
}  // namespace hindcast::tests
