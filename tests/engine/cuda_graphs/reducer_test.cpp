// LibTorch's own C++ DDP Reducer, unmodified, on the fake card, with hindcast's kernels and with CUDA graphs: each rank is a thread with
// its own device. Gradients equal the stock engine's up to rounding. All-reduces start while the backward still computes, and each waits
// for what it reads.

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "hindcast/hindcast.h"
#include "tests/cuda_emulator/machine/machine.h"
#include "tests/engine/cuda_graphs/fake_card.h"
#include "tests/support/same_grads.h"
#include "tests/whole/distributed/stream_backend.h"

namespace hindcast::tests::reducer_test {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Events = std::vector<std::string>;

constexpr int kRanks = 2, kSteps = 12, kLayers = 3;

/// Of one rank: the events of its backwards, in order, and its results.
struct Trained {
  Events events;
  Tensors gradients;  // of all steps, on the CPU
};

/// One rank of the training.
class Rank {
 public:
  Rank(int rank, const c10::intrusive_ptr<c10d::Store>& store, bool has_bucket_views) : rank_(rank), device_(fake(rank)) {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, kRanks);
    group->setBackend(device_.type(), c10d::ProcessGroup::CUSTOM,
                      c10::make_intrusive<StreamBackend>(store, rank, kRanks,
                                                         [this](const auto&) { trained_.events.emplace_back("all-reduce starts"); }));
    group->setDefaultBackend(c10d::ProcessGroup::CUSTOM);
    for (uint64_t i = 0; i < kLayers; ++i) add_parameter(i);
    constexpr int64_t kBucketBytes = 16 * sizeof(float);  // one parameter
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters_, {static_cast<size_t>(kBucketBytes)});
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_shared<c10d::Reducer>(parameters_, buckets, group, std::vector<bool>(parameters_.size(), false), kBucketBytes,
                                               false, has_bucket_views, std::unordered_map<size_t, std::string>{}, kBucketBytes, false,
                                               false, std::vector<int64_t>{});
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Trained train() {
    for (int step = 0; step < kSteps; ++step) {
      trained_.events.push_back("step " + std::to_string(step));
      reducer_->rebuild_buckets();
      reducer_->prepare_for_forward();
      const Tensor loss = forward(step);
      reducer_->prepare_for_backward({});
      loss.backward();
      trained_.events.emplace_back("backward ends");
      for (const Tensor& parameter : parameters_) update(parameter, step);
    }
    return std::move(trained_);
  }

 private:
  void add_parameter(uint64_t number) {
    const Tensor parameter = leaf(number, device_);
    parameter.register_hook([this, number](const Tensor& gradient) {
      trained_.events.push_back("gradient " + std::to_string(number) + " comes");
      return gradient;
    });
    parameters_.push_back(parameter);
  }

  Tensor constant(uint64_t seed) const { return leaf(seed, device_).detach(); }
  Tensor layer(const Tensor& x, const Tensor& weight) const { return (x.mm(weight).tanh() * scale_).sin(); }

  // There are enough steps for a graph between the hooks of two parameters.
  Tensor forward(int step) const {
    Tensor x = constant(static_cast<uint64_t>(100 * step + 10 + rank_));
    for (const Tensor& parameter : parameters_) {
      x = layer(x, parameter);
      for (const Tensor& weight : fixed_) x = layer(x, weight);
    }
    return x.pow(2).mean();
  }

  void update(const Tensor& parameter, int step) {
    const at::NoGradGuard no_grad;
    trained_.gradients.push_back(to_cpu(parameter.grad()));
    parameter.sub_(parameter.grad(), 0.1);
    if (step % 2 == 0) {
      parameter.mutable_grad().reset();
    } else {
      parameter.grad().zero_();
    }
  }

  const int rank_;
  const at::Device device_;
  Trained trained_;
  Tensors parameters_;
  const Tensors fixed_ = {constant(50), constant(51)};
  const Tensor scale_ = constant(52);
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

/// `options`: hindcast's; null: the stock engine.
std::array<Trained, kRanks> train_all(const Options* options, bool has_bucket_views) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::seconds(120));  // ranks that wait for one that has failed fail too
  std::array<Trained, kRanks> trained;
  std::vector<std::thread> ranks;
  synchronize_fake_device();
  take_unordered();
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const c10::DeviceGuard on_device(fake(rank));
        std::optional<Guard> guard;
        if (options != nullptr) guard.emplace(enable(*options));
        trained[static_cast<size_t>(rank)] = Rank(rank, store, has_bucket_views).train();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(take_unordered(), Events());
  return trained;
}

bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

/// In every step the first all-reduce starts before the last gradient of that step is computed.
void expect_overlap(const Events& events) {
  int overlaps = 0;
  bool reduces = false, overlaps_now = false;
  for (const std::string& event : events) {
    if (starts_with(event, "step ")) reduces = overlaps_now = false;
    if (starts_with(event, "all-reduce")) reduces = true;
    if (starts_with(event, "gradient") && reduces) overlaps_now = true;
    if (event == "backward ends") overlaps += overlaps_now ? 1 : 0;
  }
  EXPECT_EQ(overlaps, kSteps);
}

void expect_near(const Tensors& ours, const Tensors& stock) {
  ASSERT_EQ(stock.size(), static_cast<size_t>(kSteps * kLayers));
  ASSERT_EQ(ours.size(), stock.size());
  for (size_t i = 0; i < stock.size(); ++i) {
    EXPECT_LE((ours[i] - stock[i]).abs().max().item<double>(), 2e-5 * stock[i].abs().max().item<double>()) << "gradient " << i;
  }
}

class ReducerOnACard : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { install_fake_card(); }
  void TearDown() override {
    reset();
    EXPECT_EQ(take_graph_errors(), Events());
  }

  /// What hindcast did.
  static Stats expect_like_stock(const Options& options) {
    const auto stock = train_all(nullptr, GetParam());
    reset();
    const uint64_t launches = cuda::launch_counts().launches;
    const auto ours = train_all(&options, GetParam());
    for (size_t rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      EXPECT_EQ(stock[rank].events, ours[rank].events);
      expect_overlap(ours[rank].events);
      expect_near(ours[rank].gradients, stock[rank].gradients);
    }
    for (size_t i = 0; i < ours[0].gradients.size() && i < ours[1].gradients.size(); ++i) {
      EXPECT_EQ(first_difference(ours[0].gradients[i], ours[1].gradients[i]), "") << "gradient " << i;
    }
    const Stats counts = stats();
    EXPECT_EQ(counts.backwards, static_cast<uint64_t>(kRanks * kSteps)) << counts;
    EXPECT_GT(counts.hits, 0U) << counts;
    EXPECT_EQ(counts.compiler_failures + counts.refused_graphs, 0U) << counts;
    EXPECT_GT(cuda::launch_counts().launches, launches) << counts;
    return counts;
  }

 private:
  const CachedFakeMemory cached_;
};

TEST_P(ReducerOnACard, WithKernels) { EXPECT_EQ(expect_like_stock({.compiler = compilers::fused(), .async = false}).cuda_graphs, 0U); }

TEST_P(ReducerOnACard, WithCudaGraphs) {
  const Stats counts = expect_like_stock({.compiler = compilers::fused(), .async = false, .cuda_graphs = true});
  EXPECT_GT(counts.cuda_graph_launches, 0U) << counts;
}

INSTANTIATE_TEST_SUITE_P(Gradients, ReducerOnACard, testing::Bool(),
                         [](const auto& info) { return info.param ? "AreViewsOfBuckets" : "AreTheirOwn"; });

}  // namespace
}  // namespace hindcast::tests::reducer_test
