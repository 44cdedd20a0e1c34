#include "examples/digits/whole_step.h"

#include <fmt/format.h>
#include <hindcast/aot.h>
#include <hindcast/optim.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "examples/digits/models.h"
#include "examples/digits/progress.h"

namespace digits {
namespace {

using torch::Tensor;

constexpr double kMaxNorm = 1.0;
constexpr std::array<std::string_view, 4> kNames = {"as it is", "+ enable()", "+ aot_module()", "+ compiled_step()"};

/// One model, trained with the first lines of hindcast up to `level`.
class Trainer {
 public:
  Trainer(const Recipe& recipe, std::uint64_t seed, std::size_t level, const ::hindcast::Compiler& compiler)
      : level_(level), compiler_(compiler) {
    torch::manual_seed(seed);
    model_ = recipe.make();
    optimizer_ = std::make_unique<torch::optim::AdamW>(model_->parameters(), torch::optim::AdamWOptions(recipe.learning_rate));
    ::hindcast::AotOptions options;
    options.fw_compiler = options.bw_compiler = compiler;
    options.partition = ::hindcast::partition::min_cut;
    if (level_ >= 2) compiled_.emplace(::hindcast::aot_module(model_, options));
    if (level_ >= 3) step_.emplace(::hindcast::compiled_step(*optimizer_, ::hindcast::ClipGradNorm{kMaxNorm}));
  }

  double step(const Batch& batch) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<::hindcast::Guard> guard;
    if (level_ >= 1) guard.emplace(::hindcast::enable(compiler_));
    optimizer_->zero_grad();
    const Tensor scores = compiled_ ? (*compiled_)(batch.images) : model_->forward(batch.images);
    const Tensor loss = torch::nn::functional::cross_entropy(scores, batch.labels);
    loss.backward();
    if (step_) {
      (*step_)();
    } else {
      torch::nn::utils::clip_grad_norm_(model_->parameters(), kMaxNorm);
      optimizer_->step();
    }
    us_.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    return loss.item<double>();
  }

  double accuracy(const Batch& batch) {
    const torch::NoGradGuard no_grad;
    model_->eval();
    const Tensor right = model_->forward(batch.images).argmax(1).eq(batch.labels);
    model_->train();
    return right.to(torch::kFloat64).mean().item<double>();
  }

  double median_us() const {
    std::vector<double> sorted = us_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  const std::size_t level_;
  const ::hindcast::Compiler compiler_;
  std::shared_ptr<Classifier> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<::hindcast::AotModule<Classifier>> compiled_;
  std::optional<::hindcast::CompiledStep> step_;
  std::vector<double> us_;
};

std::string rows_of(const Recipe& recipe, const Digits& digits, const Options& options, const ::hindcast::Compiler& compiler) {
  ::hindcast::reset();
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (std::size_t level = 0; level < kNames.size(); ++level)
    trainers.push_back(std::make_unique<Trainer>(recipe, options.seed, level, compiler));
  const std::int64_t epochs = options.epochs.value_or(recipe.epochs);
  const std::int64_t steps = (digits.train.labels.size(0) + options.batch_size - 1) / options.batch_size;
  Progress progress(recipe.name, epochs, steps);
  std::size_t turn = 0;  // alternates the order: the lane that runs second finds warm caches
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    double loss_sum = 0;
    for (const Batch& batch : shuffled_batches(digits.train, options.batch_size, options.seed + static_cast<std::uint64_t>(epoch))) {
      double loss = 0;
      for (std::size_t i = 0; i < trainers.size(); ++i) loss = trainers[(i + turn) % trainers.size()]->step(batch);
      ++turn;
      loss_sum += loss;
      progress.step_done(loss);
    }
    progress.epoch_done(loss_sum / static_cast<double>(steps), trainers.back()->accuracy(digits.held_out));
  }
  std::string text;
  for (std::size_t level = 0; level < kNames.size(); ++level) {
    text += fmt::format("{:<12}  {:<18}  {:>9.0f}  {:>5.2f}  {:>7.1f}%\n", level == 0 ? recipe.name : "", kNames[level],
                        trainers[level]->median_us(), trainers[0]->median_us() / trainers[level]->median_us(),
                        100 * trainers[level]->accuracy(digits.held_out));
  }
  return text;
}

}  // namespace

std::string whole_steps(const Digits& digits, const Options& options, const ::hindcast::Compiler& compiler) {
  std::string text =
      fmt::format("{:<12}  {:<18}  {:>9}  {:>5}  {:>8}\n{}\n", "model", "", "step us", "ratio", "accuracy", std::string(60, '-'));
  for (const Recipe& recipe : recipes()) {
    if (options.model == "all" || options.model == recipe.name) text += rows_of(recipe, digits, options, compiler);
  }
  return text + "(medians of one step: forward, backward, clip_grad_norm_, AdamW; each line adds to the one above it)\n";
}

}  // namespace digits
