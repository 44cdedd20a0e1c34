// Leaves' gradients whose memory is also read through another storage, as created by from_blob, DLPack and NumPy. The stock engine does
// some of these reads after the leaf's accumulation.

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "engine/call/saved_gradients.h"
#include "hindcast/hindcast.h"
#include "tests/codegen/cpu/near_grads.h"
#include "tests/support/log_capture.h"

namespace hindcast::tests::lent_grads_test {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr NearGrads kCancels{.units_in_double = 32};
constexpr NearGrads kCancelsOnStockEngine{.misses = 3, .units_in_double = 32};

constexpr const char* kWithoutKernels = "without kernels this time";

/// Counts the steps in the last type.
uint64_t left_to_stock() { return stats().fallbacks_by_reason["SavesGradient"]; }

/// The same bytes; `owner` has to outlive it.
at::Tensor lent(const at::Tensor& owner) { return at::from_blob(owner.mutable_data_ptr(), owner.sizes(), owner.options()); }

at::Tensor through_dlpack(const at::Tensor& owner) { return at::fromDLPack(at::toDLPack(owner)); }

/// A `.grad`, a saved tensor that shares its memory, and the owner of that memory if it is not the gradient.
struct Shared {
  at::Tensor grad, saved, owner;
};
using Sharing = std::function<Shared(const at::Tensor& owner)>;

/// `second` reads the gradient of p, to which `first` adds, as in a program with a learned learning rate.
void expect_read_as_in_stock(const Sharing& share) {
  expect_near_grads(
      [&](at::TensorOptions options) {
        const auto p = near_leaf({6, 20}, options), rate = near_leaf({1}, options), bias = near_leaf({20}, options);
        Shared shared = share(at::randn({6, 20}, options));
        p.mutable_grad() = std::move(shared.grad);  // nobody else may hold it
        const auto first = (p * 2 + bias).sigmoid().sum(), second = (p.tanh() - rate * shared.saved).cos().sum();
        (first + second).backward();
        return Tensors{p.grad().clone(), rate.grad(), bias.grad()};
      },
      kCancelsOnStockEngine);
  EXPECT_EQ(left_to_stock(), 2U);  // all but the first, which is captured
}

TEST(LentGrads, ANodeSavedWhatWasLent) {
  expect_read_as_in_stock([](const at::Tensor& owner) { return Shared{owner, lent(owner), {}}; });
  expect_read_as_in_stock([](const at::Tensor& owner) { return Shared{owner, through_dlpack(owner), {}}; });
}

TEST(LentGrads, TheGradientIsWhatWasLent) {
  expect_read_as_in_stock([](const at::Tensor& owner) { return Shared{lent(owner), owner, {}}; });
  expect_read_as_in_stock([](const at::Tensor& owner) { return Shared{through_dlpack(owner), owner, {}}; });
}

TEST(LentGrads, BothAreLent) {
  expect_read_as_in_stock([](const at::Tensor& owner) { return Shared{lent(owner), lent(owner), owner}; });
}

// The ranges overlap, and start at different addresses.
TEST(LentGrads, TheLastRowsWereLent) {
  expect_read_as_in_stock([](const at::Tensor& owner) { return Shared{owner, lent(owner.narrow(0, 5, 1)), {}}; });
  expect_read_as_in_stock([](const at::Tensor& owner) {
    const auto larger = at::randn({7, 20}, owner.options());
    return Shared{lent(larger.narrow(0, 0, 6)), lent(larger.narrow(0, 1, 6)), larger};
  });
}

// Its version is not checked, so the plan as captured, which keeps the stock engine's order, gives its results.
TEST(LentGrads, TheRootGradientIsLent) {
  const LogCapture logs("fusion");
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto p = near_leaf({6, 20}, options), q = near_leaf({6, 20}, options);
        p.mutable_grad() = at::randn({6, 20}, options);
        (p * 2 + q.tanh() * q).backward(lent(p.grad()));
        return Tensors{p.grad(), q.grad()};
      },
      kCancels);
  EXPECT_EQ(logs.count(kWithoutKernels), 4U);  // the two hits of each type
  EXPECT_EQ(left_to_stock(), 0U);
}

TEST(LentGrads, AHookReturnsWhatWasLent) {
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto x = near_leaf({9, 28}, options), w = near_leaf({9, 28}, options);
        w.mutable_grad() = at::ones({9, 28}, options);
        const auto y = x.tanh(), m = w * 2;
        const auto sum = y + m;
        sum.register_hook([&](const at::Tensor&) { return lent(w.grad()); });
        sum.sum().backward();
        return Tensors{x.grad(), w.grad()};
      },
      {.misses = 3});
}

// The forward saw the gradient that is added to: stock detects that its version has changed.
TEST(LentGrads, AnErrorOfStockIsRaisedInHitsToo) {
  for (const bool has_kernels : {true, false}) {
    reset();
    Options options = fused_options();
    if (!has_kernels) options.compiler = compilers::eager();
    const auto w = near_leaf({8, 8}, at::kFloat), b = near_leaf({8}, at::kFloat);
    w.mutable_grad() = at::randn({8, 8});
    for (int step = 0; step < 6; ++step) {
      const bool sees_gradient = step > 2;
      const at::Tensor x = sees_gradient ? w.grad().narrow(0, 0, 6) : at::randn({6, 8});
      const at::Tensor loss = (x * b).tanh().mm(w.t()).square().sum();
      const auto guard = enable(options);
      if (sees_gradient) {
        EXPECT_THROW(loss.backward(), c10::Error);
      } else {
        loss.backward();
      }
    }
    EXPECT_EQ(left_to_stock(), 3U);
  }
}

// For example an input from NumPy: kernels run, whoever owns its memory, since no gradient uses it.
TEST(LentGrads, OthersMayBeLent) {
  const LogCapture logs("fusion");
  expect_near_grads(
      [](at::TensorOptions options) {
        const auto data = at::randn({6, 20}, options);
        const auto p = near_leaf({6, 20}, options), q = near_leaf({6, 20}, options);
        p.mutable_grad() = at::randn({6, 20}, options);
        q.mutable_grad() = at::randn({6, 20}, options);
        ((p * lent(data)).sigmoid() * q).sum().backward();
        return Tensors{p.grad(), q.grad()};
      },
      kCancels);
  EXPECT_EQ(logs.count(kWithoutKernels), 0U);
  EXPECT_EQ(left_to_stock(), 0U);
}

TEST(LentGrads, MemoryMeetsWhatOverlaps) {
  const auto whole = at::zeros({64}, at::kFloat);
  const auto part = [&](int64_t from, int64_t to) { return lent(whole.slice(0, from, to)); };
  engine::Memory memory;
  EXPECT_TRUE(memory.empty());
  EXPECT_FALSE(memory.meets(whole));
  memory.add(part(40, 44));
  memory.add(part(4, 20));
  memory.add(part(8, 12));  // within another one
  memory.add(at::empty({0}));
  const auto meets = [&](int64_t from, int64_t to) { return memory.meets(part(from, to)); };
  EXPECT_FALSE(meets(0, 4));
  EXPECT_TRUE(meets(0, 5));
  EXPECT_TRUE(meets(5, 6));
  EXPECT_TRUE(meets(13, 14));  // after the inner one
  EXPECT_TRUE(meets(19, 30));
  EXPECT_FALSE(meets(20, 40));
  EXPECT_TRUE(meets(43, 64));
  EXPECT_FALSE(meets(44, 64));
  EXPECT_TRUE(memory.meets(whole));
  EXPECT_FALSE(memory.meets(at::empty({0})));
  EXPECT_FALSE(memory.meets(at::empty({8})));
}

TEST(LentGrads, WhatIsHeldOnce) {
  const auto given = at::zeros({8});
  EXPECT_TRUE(engine::is_held_once(given));
  EXPECT_FALSE(engine::is_held_once(lent(given)));
  const auto view = given.narrow(0, 0, 2);
  EXPECT_FALSE(engine::is_held_once(given));
  EXPECT_FALSE(engine::is_held_once(view));
}

}  // namespace
}  // namespace hindcast::tests::lent_grads_test
