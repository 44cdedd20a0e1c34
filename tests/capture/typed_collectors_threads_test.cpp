#include "capture/backward/typed_collectors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace hindcast::tests::typed_collectors_threads_test {
namespace {

template <int kTag>
struct Handwritten : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override { return std::move(grads); }
};

template <int... kTags>
bool none_is_found(std::integer_sequence<int, kTags...>) {
  return ((capture::find_typed_collector(Handwritten<kTags>()) == nullptr) && ...);
}

TEST(TypedCollectors, ManyThreadsMayMeetNewTypesAtOnce) {
  const auto x = at::ones({2}).requires_grad_();
  const auto product = x * x;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(none_is_found(std::make_integer_sequence<int, 100>()));
      EXPECT_STREQ(capture::find_typed_collector(*product.grad_fn())->name, "MulBackward0");
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace hindcast::tests::typed_collectors_threads_test
