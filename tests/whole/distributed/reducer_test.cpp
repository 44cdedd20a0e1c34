// LibTorch's own C++ DDP Reducer, unmodified, in two processes that average their gradients. Its hooks are post
// hooks of AccumulateGrads and final callbacks. The gradients are those of the stock engine, bit for bit; its
// all-reduces start while the backward still computes.

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/programs.h"
#include "tests/whole/distributed/child_process.h"
#include "tests/whole/distributed/store_backend.h"

namespace hindcast::tests {
namespace {

constexpr int kRanks = 2;
constexpr int kSteps = 5;
constexpr int kLayers = 4;

/// A configuration of the Reducer; each one is a test.
struct Setting {
  const char* name;
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool unequal_batches = false;
};

constexpr Setting kSettings[] = {
    {.name = "Plain"},
    {.name = "BucketViews", .gradient_as_bucket_view = true},
    {.name = "UnusedParameters", .find_unused_parameters = true},
    {.name = "StaticGraph", .static_graph = true},
    {.name = "UnequalBatches", .gradient_as_bucket_view = true, .unequal_batches = true},
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// One rank of the training, which notes when gradients arrive and when all-reduces start.
class Rank {
 public:
  Rank(Log& log, const Setting& setting, int rank, const std::string& store_file) : log_(log), setting_(setting), rank_(rank) {
    auto store = c10::make_intrusive<c10d::FileStore>(store_file, kRanks);
    store->setTimeout(std::chrono::seconds(20));
    auto backend = c10::make_intrusive<StoreBackend>(store, rank, kRanks, [this](const at::Tensor& tensor) {
      log_.note("all-reduce of " + std::to_string(tensor.numel()) + " numbers starts");
    });
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store, rank, kRanks);
    group_->setBackend(c10::kCPU, c10d::ProcessGroup::CUSTOM, backend);
    group_->setDefaultBackend(c10d::ProcessGroup::CUSTOM);

    at::manual_seed(1);  // equal weights on both ranks
    for (int i = 0; i < kLayers; ++i) {
      add_parameter("weight " + std::to_string(i), leaf({8, 8}));
      add_parameter("bias " + std::to_string(i), leaf({8}));
    }
    // Two parameters per bucket; DDP assigns the buckets in reverse, in the order in which gradients arrive.
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters_, {8 * 9 * sizeof(float)});
    std::reverse(buckets.begin(), buckets.end());
    constexpr int64_t kBucketBytes = 8 * 9 * sizeof(float);
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters_, buckets, group_, std::vector<bool>(parameters_.size(), false), kBucketBytes, setting.find_unused_parameters,
        setting.gradient_as_bucket_view, std::unordered_map<size_t, std::string>{}, kBucketBytes, false, false, std::vector<int64_t>{});
    // The Reducer tells its logger when the set of unused parameters changes, without asking whether it has one.
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    if (setting.static_graph) reducer_->set_static_graph();
  }

  void train() {
    for (int step = 0; step < kSteps; ++step) {
      log_.note("step " + std::to_string(step));
      at::manual_seed(100 * step + rank_);
      reducer_->rebuild_buckets();
      reducer_->prepare_for_forward();
      const auto out = forward(step);
      reducer_->prepare_for_backward(setting_.find_unused_parameters ? std::vector<at::Tensor>{out} : std::vector<at::Tensor>{});
      if (setting_.static_graph && step == 0) delay_first_all_reduce(out);
      out.pow(2).mean().backward();
      log_.note("backward ends");
      for (size_t i = 0; i < parameters_.size(); ++i) {
        log_.show("grad of " + names_[i], parameters_[i].grad());
        const at::NoGradGuard no_grad;
        if (parameters_[i].grad().defined()) parameters_[i].sub_(parameters_[i].grad(), 0.1);
        zero_grad(parameters_[i], step);
      }
    }
  }

 private:
  void add_parameter(const std::string& name, const at::Tensor& parameter) {
    parameter.register_hook([this, name](at::Tensor) { log_.note("gradient of " + name + " comes"); });
    parameters_.push_back(parameter);
    names_.push_back(name);
  }

  at::Tensor forward(int step) {
    const int64_t rows = setting_.unequal_batches ? 2 + (step + rank_) % 3 : 4;
    auto x = at::randn({rows, 8});
    for (int i = 0; i < kLayers; ++i) {
      // Rank 1 leaves a layer out on odd steps: its parameters are unused there.
      if (setting_.find_unused_parameters && rank_ == 1 && step % 2 == 1 && i == 2) continue;
      x = at::addmm(parameters_[2 * i + 1], x, parameters_[2 * i]).tanh();
    }
    return x;
  }

  /// As DDP does for a static graph: the first backward only counts gradients, and reduces in a final callback.
  void delay_first_all_reduce(const at::Tensor& out) {
    out.register_hook([this](at::Tensor) {
      torch::autograd::Engine::get_default_engine().queue_callback([this] {
        log_.note("delayed all-reduces");
        reducer_->delay_all_reduce();
      });
    });
  }

  static void zero_grad(const at::Tensor& parameter, int step) {
    if (step % 2 == 0) {
      parameter.mutable_grad().reset();
    } else if (parameter.grad().defined()) {
      parameter.grad().zero_();
    }
  }

  Log& log_;
  Setting setting_;
  int rank_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

// The body of the child processes; disabled, because it is not a test by itself.
TEST(ReducerRank, DISABLED_Trains) {
  const int rank = std::stoi(environment("HC_TEST_RANK"));
  const auto& setting = kSettings[std::stoi(environment("HC_TEST_SETTING"))];
  Log log;
  std::optional<Guard> guard;
  if (environment("HC_TEST_ENGINE") == "hindcast") guard.emplace(hindcast::enable());
  Rank(log, setting, rank, environment("HC_TEST_STORE")).train();
  if (guard) {
    EXPECT_EQ(hindcast::stats().backwards, static_cast<uint64_t>(kSteps)) << hindcast::report();
    EXPECT_GT(hindcast::stats().hits, 0U) << hindcast::report();
  }
  std::ofstream out(environment("HC_TEST_LOG"));
  for (const auto& event : log.events()) {
    out << event << '\n';
  }
}

/// A folder of its own, removed at the end.
struct TemporaryFolder {
  TemporaryFolder() {
    auto pattern = (std::filesystem::temp_directory_path() / "hindcast-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make the folder " + pattern);
    path = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

using Events = std::vector<std::string>;

Events lines_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  Events lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// Both ranks as processes; the events of each.
std::vector<Events> train(const std::string& engine, int setting) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<ChildProcess>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<ChildProcess>(
        "ReducerRank.DISABLED_Trains",
        std::map<std::string, std::string>{{"HC_TEST_RANK", std::to_string(rank)},
                                           {"HC_TEST_SETTING", std::to_string(setting)},
                                           {"HC_TEST_ENGINE", engine},
                                           {"HC_TEST_STORE", (folder.path / "store").string()},
                                           {"HC_TEST_LOG", (folder.path / ("log" + std::to_string(rank))).string()},
                                           {"OMP_NUM_THREADS", "1"}}));
  }
  std::vector<Events> events;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ranks[rank]->wait(std::chrono::seconds(120)), 0) << engine << ", rank " << rank;
    events.push_back(lines_of(folder.path / ("log" + std::to_string(rank))));
  }
  return events;
}

bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

/// In every step the first all-reduce starts before the last gradient of that step is computed.
void expect_overlap(const Events& events) {
  int overlaps = 0;
  bool reducing = false, overlapped = false;
  for (const auto& event : events) {
    if (starts_with(event, "step ")) reducing = overlapped = false;
    if (starts_with(event, "all-reduce")) reducing = true;
    if (starts_with(event, "gradient of") && reducing) overlapped = true;
    if (event == "backward ends") overlaps += overlapped ? 1 : 0;
  }
  EXPECT_EQ(overlaps, kSteps);
}

Events grads_in(const Events& events) {
  Events grads;
  std::copy_if(events.begin(), events.end(), std::back_inserter(grads), [](const auto& event) { return starts_with(event, "grad of"); });
  return grads;
}

class ReducerInTwoProcesses : public testing::TestWithParam<int> {};

TEST_P(ReducerInTwoProcesses, HasTheGradientsAndTheEventsOfTheStockEngine) {
  const auto stock = train("stock", GetParam());
  const auto ours = train("hindcast", GetParam());
  for (int rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    ASSERT_EQ(grads_in(stock[rank]).size(), static_cast<size_t>(2 * kLayers * kSteps));
    EXPECT_EQ(stock[rank], ours[rank]);
    EXPECT_EQ(grads_in(ours[rank]), grads_in(ours[0]));
    // A graph that is searched or counted first may hold its all-reduces back in the first step.
    const auto& setting = kSettings[GetParam()];
    if (!setting.static_graph && !setting.find_unused_parameters) expect_overlap(ours[rank]);
  }
}

INSTANTIATE_TEST_SUITE_P(Distributed, ReducerInTwoProcesses, testing::Range(0, static_cast<int>(std::size(kSettings))),
                         [](const auto& info) { return kSettings[info.param].name; });

}  // namespace
}  // namespace hindcast::tests
