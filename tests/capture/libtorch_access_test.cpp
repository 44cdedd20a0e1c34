#include "capture/backward/libtorch_access.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/torch.h>

#include <chrono>
#include <future>

namespace hindcast::tests {
namespace {

using torch::autograd::SavedVariable;

TEST(LibTorchAccess, ReadsASavedInputInPlace) {
  const auto tensor = torch::ones({2}, torch::requires_grad());
  const SavedVariable saved(tensor, /*is_output=*/false);
  EXPECT_TRUE(capture::saved_data(saved).is_same(tensor));
  EXPECT_FALSE(capture::was_default_constructed(saved));
}

TEST(LibTorchAccess, ASavedOutputIsATwinOverTheSameMemory) {
  const auto result = torch::ones({2}, torch::requires_grad()).exp();
  const auto& saved = dynamic_cast<torch::autograd::generated::ExpBackward0&>(*result.grad_fn()).result_;
  EXPECT_FALSE(capture::saved_data(saved).is_same(result));
  EXPECT_EQ(capture::saved_data(saved).data_ptr(), result.data_ptr());
}

TEST(LibTorchAccess, VersionIsThatOfTheMomentOfSaving) {
  auto tensor = torch::ones({2});
  tensor.add_(1);
  const SavedVariable saved(tensor, false);
  tensor.add_(1);
  EXPECT_EQ(capture::saved_version(saved), 1u);
  EXPECT_EQ(tensor._version(), 2);
}

TEST(LibTorchAccess, TellsReleasedFromNeverSaved) {
  const SavedVariable never;
  EXPECT_TRUE(capture::was_default_constructed(never));
  SavedVariable released(torch::ones({2}), false);
  released.reset_data();
  EXPECT_FALSE(capture::was_default_constructed(released));
  EXPECT_FALSE(capture::saved_data(released).defined());
}

TEST(LibTorchAccess, NodeMutexIsTheOneThatReleasingTakes) {
  const auto result = torch::ones({2}, torch::requires_grad()).exp();
  auto& node = *result.grad_fn();
  std::unique_lock lock(capture::node_mutex(node));
  auto release = std::async(std::launch::async, [&] { node.release_variables(); });
  EXPECT_EQ(release.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  lock.unlock();
  release.get();
}

}  // namespace
}  // namespace hindcast::tests
