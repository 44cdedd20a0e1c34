// LibTorch's own C++ DDP Reducer, unmodified, on two devices: each rank is a thread with its own device, runs forwards on its own stream,
// and all-reduces on a third one, like NCCL. Gradients equal the stock engine's, and everything waits for what it reads.

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#include <array>
#include <optional>
#include <thread>

#include "tests/support/fake_device.h"
#include "tests/support/same_grads.h"
#include "tests/whole/distributed/stream_backend.h"

namespace hindcast::tests {
namespace {

constexpr int kRanks = 2, kSteps = 4, kLayers = 3;

/// The gradients of one rank, of all steps.
std::vector<at::Tensor> train(int rank, const c10::intrusive_ptr<c10d::Store>& store, bool is_bucket_view) {
  const at::Device device = fake(rank);
  const c10::DeviceGuard on_device(device);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, kRanks);
  group->setBackend(device.type(), c10d::ProcessGroup::CUSTOM,
                    c10::make_intrusive<StreamBackend>(store, rank, kRanks, [](const at::Tensor&) {}));
  group->setDefaultBackend(c10d::ProcessGroup::CUSTOM);
  std::vector<at::Tensor> parameters;
  for (uint64_t i = 0; i < kLayers; ++i) parameters.push_back(leaf(i, device));
  constexpr int64_t kBucketBytes = 16 * sizeof(float);  // one parameter
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {static_cast<size_t>(kBucketBytes)});
  std::reverse(buckets.begin(), buckets.end());
  auto reducer = std::make_shared<c10d::Reducer>(parameters, buckets, group, std::vector<bool>(parameters.size(), false), kBucketBytes,
                                                 false, is_bucket_view, std::unordered_map<size_t, std::string>{}, kBucketBytes, false,
                                                 false, std::vector<int64_t>{});
  const auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  std::vector<at::Tensor> seen;
  for (uint64_t step = 0; step < kSteps; ++step) {
    reducer->rebuild_buckets();
    reducer->prepare_for_forward();
    order(stream(0, rank), stream(1, rank));
    at::Tensor loss;
    {
      const c10::StreamGuard guard(stream(1, rank));
      auto x = leaf(100 * step + static_cast<uint64_t>(rank), device).detach();
      for (const at::Tensor& parameter : parameters) x = x.mm(parameter).tanh();
      loss = x.pow(2).mean();
    }
    reducer->prepare_for_backward({});
    loss.backward();
    for (const at::Tensor& parameter : parameters) seen.push_back(to_cpu(parameter.grad()));
    synchronize_fake_device();  // what the forward read may be freed
  }
  return seen;
}

std::array<std::vector<at::Tensor>, kRanks> train_all(bool is_ours, bool is_bucket_view) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::array<std::vector<at::Tensor>, kRanks> gradients;
  std::vector<std::thread> ranks;
  take_unordered();
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      std::optional<Guard> guard;
      if (is_ours) guard.emplace(enable(compilers::eager()));
      gradients[static_cast<size_t>(rank)] = train(rank, store, is_bucket_view);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(take_unordered(), std::vector<std::string>());
  return gradients;
}

TEST(StreamsOfTheReducer, GradientsOfAllRanksMeet) {
  install_fake_device();
  for (const bool is_bucket_view : {false, true}) {
    SCOPED_TRACE(is_bucket_view ? "bucket views" : "plain");
    const auto stock = train_all(false, is_bucket_view);
    reset();
    const auto ours = train_all(true, is_bucket_view);
    EXPECT_EQ(stats().backwards, static_cast<uint64_t>(kRanks * kSteps)) << report();
    EXPECT_GT(stats().hits, 0U);
    ASSERT_EQ(stock[0].size(), static_cast<size_t>(kSteps * kLayers));
    for (size_t i = 0; i < stock[0].size(); ++i) {
      EXPECT_EQ(first_difference(stock[0][i], ours[0][i]), "") << "gradient " << i;
      EXPECT_EQ(first_difference(ours[0][i], ours[1][i]), "") << "gradient " << i;
    }
  }
}

}  // namespace
}  // namespace hindcast::tests
