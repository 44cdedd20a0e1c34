#include "examples/digits/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <vector>

#include "examples/digits/progress.h"

namespace digits {
namespace {

using torch::Tensor;

constexpr double kWeightDecay = 1e-2;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A model, its optimiser, and how long its backwards took.
class Learner {
 public:
  Learner(const Recipe& recipe, std::uint64_t seed) {
    torch::manual_seed(seed);
    model_ = recipe.make();
    optimizer_ = std::make_unique<torch::optim::AdamW>(model_->parameters(),
                                                       torch::optim::AdamWOptions(recipe.learning_rate).weight_decay(kWeightDecay));
  }

  /// Forward and backward; `dropout_seed` decides the dropout masks. Returns the loss.
  double compute_gradients(const Batch& batch, std::uint64_t dropout_seed) {
    torch::manual_seed(dropout_seed);
    optimizer_->zero_grad();
    const Tensor loss = torch::nn::functional::cross_entropy(model_->forward(batch.images), batch.labels);
    const auto start = std::chrono::steady_clock::now();
    loss.backward();
    const auto end = std::chrono::steady_clock::now();
    backward_us_.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    return loss.item<double>();
  }

  void update_weights() { optimizer_->step(); }

  void take_weights_of(const Learner& other) {
    torch::NoGradGuard no_grad;
    const auto theirs = other.model_->named_parameters(), buffers = other.model_->named_buffers();
    for (auto& parameter : model_->named_parameters()) parameter.value().copy_(theirs[parameter.key()]);
    for (auto& buffer : model_->named_buffers()) buffer.value().copy_(buffers[buffer.key()]);
  }

  void set_learning_rate(double rate) {
    for (auto& group : optimizer_->param_groups()) group.options().set_lr(rate);
  }

  double accuracy(const Batch& batch) {
    torch::NoGradGuard no_grad;
    model_->eval();
    const Tensor right = model_->forward(batch.images).argmax(1).eq(batch.labels);
    model_->train();
    return right.to(torch::kFloat64).mean().item<double>();
  }

  BackwardTime backward_time() const {
    std::vector<double> sorted = backward_us_;
    std::sort(sorted.begin(), sorted.end());
    return {sorted[sorted.size() / 2], backward_us_.front()};
  }

  torch::OrderedDict<std::string, Tensor> parameters() const { return model_->named_parameters(); }

 private:
  std::shared_ptr<Classifier> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> backward_us_;
};

/// Decreases along half a cosine, so that the last epochs settle instead of jumping about.
double learning_rate(const Recipe& recipe, std::int64_t epoch, std::int64_t epochs) {
  const double done = static_cast<double>(epoch) / static_cast<double>(epochs);
  return recipe.learning_rate * (1 + std::cos(std::numbers::pi * done)) / 2;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return kInfinity;
  if (!a.defined()) return 0;
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return kInfinity;
  if (a.numel() == 0 || torch::equal(a, b)) return 0;
  // A NaN or an infinity on both sides is no difference; subtracting would make it one.
  const Tensor same = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
  const Tensor apart = (a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs().masked_fill(same, 0.0);
  const double largest = apart.max().item<double>();
  return std::isnan(largest) ? kInfinity : largest;
}

double largest_gradient(const Learner& learner) {
  double largest = 0;
  for (const auto& parameter : learner.parameters()) {
    if (parameter.value().grad().defined()) largest = std::max(largest, parameter.value().grad().abs().max().item<double>());
  }
  return largest;
}

void compare(const Learner& stock, const Learner& ours, std::int64_t step, GradientDifference& so_far) {
  const auto theirs = stock.parameters();
  double largest = 0;
  std::string where;
  for (const auto& parameter : ours.parameters()) {
    const double difference = largest_difference(theirs[parameter.key()].grad(), parameter.value().grad());
    if (difference <= largest) continue;
    largest = difference;
    where = fmt::format("step {}, {}", step, parameter.key());
  }
  if (largest == 0) return;
  largest /= largest_gradient(stock);
  if (largest <= so_far.largest) return;
  so_far = {largest, where};
}

}  // namespace

Outcome train(const Recipe& recipe, const Digits& digits, const Schedule& schedule, const ::hindcast::Compiler& compiler) {
  ::hindcast::reset();
  Learner stock(recipe, schedule.seed);
  Learner ours(recipe, schedule.seed);
  GradientDifference gradients;
  double accuracy = 0;
  std::int64_t step = 0;

  const std::int64_t steps_per_epoch = (digits.train.labels.size(0) + schedule.batch_size - 1) / schedule.batch_size;
  Progress progress(recipe.name, schedule.epochs, steps_per_epoch);

  for (std::int64_t epoch = 0; epoch < schedule.epochs; ++epoch) {
    double loss_sum = 0;
    ours.set_learning_rate(learning_rate(recipe, epoch, schedule.epochs));
    const std::uint64_t epoch_seed = schedule.seed + static_cast<std::uint64_t>(epoch);
    for (const Batch& batch : shuffled_batches(digits.train, schedule.batch_size, epoch_seed)) {
      const std::uint64_t dropout_seed = schedule.seed + static_cast<std::uint64_t>(++step);
      double loss = 0;
      const auto run_stock = [&] { stock.compute_gradients(batch, dropout_seed); };
      const auto run_ours = [&] {
        auto guard = ::hindcast::enable(compiler);
        loss = ours.compute_gradients(batch, dropout_seed);
      };
      if (step % 2 == 0) {
        run_ours();
        run_stock();
      } else {
        run_stock();
        run_ours();
      }
      compare(stock, ours, step, gradients);
      ours.update_weights();
      stock.take_weights_of(ours);
      loss_sum += loss;
      progress.step_done(loss);
    }
    accuracy = ours.accuracy(digits.held_out);
    progress.epoch_done(loss_sum / static_cast<double>(steps_per_epoch), accuracy);
  }
  return {
      .name = recipe.name,
      .epochs = schedule.epochs,
      .default_epochs = recipe.epochs,
      .steps = step,
      .accuracy = accuracy,
      .gradients = gradients,
      .stock = stock.backward_time(),
      .hindcast = ours.backward_time(),
      .stats = ::hindcast::stats(),
  };
}

}  // namespace digits
