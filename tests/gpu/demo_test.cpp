// The demo's models are trained on a card: in each step the stock engine also computes the gradients, on a twin with the same weights.

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "examples/digits/models.h"
#include "hindcast/hindcast.h"
#include "tests/gpu/deterministic.h"
#include "tests/gpu/on_gpu.h"

namespace hindcast::tests {
namespace {

constexpr int kSteps = 40, kBatch = 64;

std::shared_ptr<digits::Classifier> model_of(const digits::Recipe& recipe) {
  at::manual_seed(1);
  auto model = recipe.make();
  model->to(device_of_tests());
  return model;
}

/// Random images with learnable labels: where they are brightest on average.
struct Batch {
  at::Tensor images = at::randn({kBatch, 1, 8, 8}), labels;
  Batch() : labels(images.flatten(1).slice(1, 0, 60).unflatten(1, {10, 6}).sum(2).argmax(1)) {
    images = images.to(device_of_tests());
    labels = labels.to(device_of_tests());
  }
};

/// Returns the loss.
double compute_gradients(digits::Classifier& model, const Batch& batch, uint64_t seed) {
  at::manual_seed(seed);  // the same dropout masks for both
  model.zero_grad();
  const at::Tensor loss = at::cross_entropy_loss(model.forward(batch.images), batch.labels);
  loss.backward();
  return loss.item<double>();
}

/// The largest difference, relative to the largest gradient.
double difference(const digits::Classifier& stock, const digits::Classifier& ours) {
  double largest = 0, apart = 0;
  const auto expected = stock.parameters(), seen = ours.parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, expected[i].grad().abs().max().item<double>());
    apart = std::max(apart, (expected[i].grad() - seen[i].grad()).abs().max().item<double>());
  }
  return apart / largest;
}

void copy_weights(const digits::Classifier& from, digits::Classifier& to) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < from.parameters().size(); ++i) to.parameters()[i].copy_(from.parameters()[i]);
  for (size_t i = 0; i < from.buffers().size(); ++i) to.buffers()[i].copy_(from.buffers()[i]);
}

class GpuDemo : public OnTestedDevice, public testing::WithParamInterface<std::tuple<std::string, bool>> {};

TEST_P(GpuDemo, TrainsAsWithTheStockEngine) {
  const auto& [name, with_graphs] = GetParam();
  const SteadyLibraries steady;
  const auto recipe = std::find_if(digits::recipes().begin(), digits::recipes().end(), [&](const auto& one) { return one.name == name; });
  const auto stock = model_of(*recipe), ours = model_of(*recipe);
  torch::optim::AdamW optimizer(ours->parameters(), torch::optim::AdamWOptions(recipe->learning_rate));
  Options options;
  options.compiler = compilers::fused();
  options.async = false;
  options.cuda_graphs = with_graphs;
  hindcast::reset();
  const std::array<Batch, 2> batches;
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const Batch& batch = batches[static_cast<size_t>(step) % batches.size()];
    compute_gradients(*stock, batch, static_cast<uint64_t>(step));
    {
      const auto guard = hindcast::enable(options);
      last = compute_gradients(*ours, batch, static_cast<uint64_t>(step));
    }
    if (step == 1) first = last;  // of the batch of the last step
    ASSERT_LT(difference(*stock, *ours), 1e-3);
    optimizer.step();
    copy_weights(*ours, *stock);
  }
  EXPECT_LT(last, first);
  const Stats stats = hindcast::stats();
  EXPECT_GE(stats.hits + 2, static_cast<uint64_t>(kSteps)) << stats;
  EXPECT_GT(stats.fused_graphs, 0U) << stats;
  EXPECT_EQ(stats.compiler_failures, 0U) << stats;
  EXPECT_TRUE(!with_graphs || !is_on_card() || stats.cuda_graph_launches > 0 || !stats.without_cuda_graph.empty()) << stats;
}

INSTANTIATE_TEST_SUITE_P(Models, GpuDemo, testing::Combine(testing::Values("mlp", "cnn", "transformer"), testing::Bool()),
                         [](const testing::TestParamInfo<std::tuple<std::string, bool>>& info) {
                           return std::get<0>(info.param) + (std::get<1>(info.param) ? "AsGraphs" : "StepByStep");
                         });

}  // namespace
}  // namespace hindcast::tests
