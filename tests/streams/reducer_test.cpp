// LibTorch's own C++ DDP Reducer, unmodified, on two devices: each rank is a thread with a device of its own, forwards on a stream of its
// own, and has its all-reduces on a third one, as NCCL has. Gradients are those of the stock engine, and everything waits for what it reads.

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#include <array>
#include <cstring>
#include <optional>
#include <thread>

#include "tests/support/fake_device.h"
#include "tests/support/same_grads.h"

namespace hindcast::tests {
namespace {

constexpr int kRanks = 2, kSteps = 4, kLayers = 3;

/// A collective that is done when its future says so.
struct StreamWork final : c10d::Work {
  StreamWork(int rank, c10d::OpType type, at::Device device)
      : Work(rank, type),
        future(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector{device})) {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future; }
  bool wait(std::chrono::milliseconds) override {
    future->wait();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> future;
};

/// Exchanges tensors through a store, by the host, on a stream for that alone.
class StreamBackend final : public c10d::Backend {
 public:
  StreamBackend(c10::intrusive_ptr<c10d::Store> store, int rank) : Backend(rank, kRanks), store_(std::move(store)) {}

  const std::string getBackendName() const override { return "streams"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    return exchange(c10d::OpType::ALLREDUCE, tensors, [&](const std::vector<at::Tensor>& of_ranks) { return at::stack(of_ranks).sum(0); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return exchange(c10d::OpType::BROADCAST, tensors,
                    [root = static_cast<size_t>(options.rootRank)](const auto& of_ranks) { return of_ranks[root]; });
  }

 private:
  template <class Combine>
  c10::intrusive_ptr<c10d::Work> exchange(c10d::OpType type, std::vector<at::Tensor>& tensors, Combine combine) {
    const at::NoGradGuard no_grad;
    const at::Device device = tensors[0].device();
    auto work = c10::make_intrusive<StreamWork>(rank_, type, device);
    const std::string key = std::to_string(number_++) + "/";
    const c10::impl::VirtualGuardImpl streams(device.type());
    const c10::Stream own = stream(9, device.index());
    order(streams.getStream(device), own);
    const c10::StreamGuard guard(own);
    for (const at::Tensor& tensor : tensors) streams.recordDataPtrOnStream(tensor.storage().data_ptr(), own);
    const at::Tensor given = tensors[0].to(at::kCPU).contiguous();
    const auto* const bytes = static_cast<const uint8_t*>(given.const_data_ptr());
    store_->set(key + std::to_string(rank_), std::vector<uint8_t>(bytes, bytes + given.nbytes()));
    std::vector<at::Tensor> of_ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<uint8_t> received = store_->get(key + std::to_string(rank));
      of_ranks.push_back(at::empty_like(given));
      std::memcpy(of_ranks.back().mutable_data_ptr(), received.data(), received.size());
    }
    tensors[0].copy_(combine(of_ranks));
    work->future->markCompleted(c10::IValue(tensors));
    return work;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int number_ = 0;
};

/// The gradients of one rank, of all steps.
std::vector<at::Tensor> train(int rank, const c10::intrusive_ptr<c10d::Store>& store, bool is_bucket_view) {
  const at::Device device = fake(rank);
  const c10::DeviceGuard on_device(device);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, kRanks);
  group->setBackend(device.type(), c10d::ProcessGroup::CUSTOM, c10::make_intrusive<StreamBackend>(store, rank));
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
    synchronize_fake_device();  // what the forward read may go
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
