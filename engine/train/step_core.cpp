#include "engine/train/step_core.h"

#include "base/format.h"
#include "base/log.h"
#include "engine/aot/tell_once.h"
#include "engine/train/recorded_step.h"
#include "engine/train/watched_leaves.h"

#include <ATen/ops/_foreach_add.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hindcast::engine {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors all_parameters(const torch::optim::Optimizer& optimizer) {
  Tensors all;
  for (const auto& group : optimizer.param_groups()) all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

const at::Tensor& loss_of(const FunctionOutput& output) {
  if (output.tensors.empty() || !output.tensors[0].defined())
    throw std::invalid_argument("hindcast::train_step: the function returned no loss: its first tensor is the loss");
  return output.tensors[0];
}

// As AccumulateGrad lays out what it gives to a leaf.
at::Tensor as_gradient_of(const at::Tensor& parameter, const at::Tensor& gradient) {
  namespace utils = torch::autograd::utils;
  if (!gradient.defined() || gradient.layout() != at::kStrided || utils::obeys_layout_contract(gradient, parameter)) return gradient;
  return utils::clone_obey_contract(gradient, parameter);
}

void without_history(FunctionOutput& output) {
  for (at::Tensor& tensor : output.tensors) {
    if (tensor.defined()) tensor = tensor.detach();
  }
}

}  // namespace

class StepCore::Implementation {
 public:
  Implementation(torch::optim::Optimizer& optimizer, TrainStepOptions options)
      : optimizer_(optimizer),
        options_(std::move(options)),
        needs_closure_(dynamic_cast<torch::optim::LBFGS*>(&optimizer) != nullptr),
        gradients_(options_.aot),
        update_(compiled_step(optimizer, options_.clip)) {
    if (options_.accumulate == 0) throw std::invalid_argument("hindcast::TrainStepOptions: accumulate is 0, expected 1 or more");
    if (all_parameters(optimizer).empty()) throw std::invalid_argument("hindcast::train_step: the optimizer has no parameters");
    if (needs_closure_ && options_.accumulate != 1)
      throw std::invalid_argument("hindcast::train_step: LBFGS evaluates the loss itself, so it takes no micro-batches");
  }

  FunctionOutput call(const FunctionCall& call) {
    ++stats_.calls;
    find_trained();
    if (needs_closure_) return by_closure(call);
    if (const char* const why = why_watched(trained_)) return in_three_parts(call, why);
    return in_one_program(call);
  }

  double grad_norm() const { return update_.grad_norm(); }

  TrainStepStats stats() const {
    TrainStepStats stats = stats_;
    const AotStats aot = gradients_.stats();
    stats.hits = aot.hits;
    stats.traces = aot.traces;
    stats.eager = aot.eager + stats.three_parts;
    stats.updates = update_.counts();
    stats.cuda_graph_launches = recorded_.launches();
    stats.cuda_graph_bytes = recorded_.bytes();
    stats.why_no_cuda_graph = recorded_.why_not();
    return stats;
  }

  void reset() {
    gradients_.reset();
    recorded_.forget();
  }

 private:
  // Parameters that a gradient is asked for. A program is for one list of them: the lists are kept, so that none has the address of one that
  // is gone.
  void find_trained() {
    trained_ = all_parameters(optimizer_);
    trained_.erase(std::remove_if(trained_.begin(), trained_.end(), [](const at::Tensor& one) { return !one.requires_grad(); }),
                   trained_.end());
    if (trained_.empty()) throw std::invalid_argument("hindcast::train_step: none of the optimizer's parameters requires a gradient");
    const auto is_now = [&](const auto& list) {
      return std::equal(trained_.begin(), trained_.end(), list.second.begin(), list.second.end(),
                        [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
    };
    const auto found = std::find_if(lists_.begin(), lists_.end(), is_now);
    if (found != lists_.end()) {
      list_ = found->first;
      return;
    }
    constexpr size_t kMostLists = 8;
    if (lists_.size() == kMostLists) {
      lists_.erase(lists_.begin());
      gradients_.reset();
    }
    list_ = ++last_list_;
    lists_.emplace_back(list_, trained_);
  }

  FunctionOutput in_one_program(const FunctionCall& call) {
    const auto run = [&](const Tensors& tensors) {
      FunctionOutput output = call.function(tensors);
      const at::Tensor loss = loss_of(output);
      refuse_other_leaves(loss, tensors);
      const Tensors gradients = torch::autograd::grad({loss}, trained_, {}, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
      without_history(output);
      for (size_t i = 0; i < trained_.size(); ++i) output.tensors.push_back(as_gradient_of(trained_[i], gradients[i]));
      return output;
    };
    FunctionCall whole{call.inputs, call.facts, call.is_static, run, call.has_owner};
    whole.facts.append(reinterpret_cast<const char*>(&list_), sizeof(list_));
    if (may_be_recorded()) {
      const auto all = [&](const FunctionCall& recorded) {
        FunctionOutput output = gradients_of(recorded);
        update_();
        return output;
      };
      if (auto output = recorded_.run({whole, gradients_, trained_, all})) return std::move(*output);
    }
    FunctionOutput output = gradients_of(whole);
    update();
    return output;
  }

  bool may_be_recorded() const {
    return options_.cuda_graphs && options_.accumulate == 1 && !options_.keep_gradients &&
           !(options_.clip && options_.clip->error_if_nonfinite);
  }

  // Added to `.grad()`.
  FunctionOutput gradients_of(const FunctionCall& whole) {
    FunctionOutput output = gradients_.call(whole);
    const size_t results = output.tensors.size() - trained_.size();
    add_gradients(output.tensors.begin() + static_cast<std::ptrdiff_t>(results));
    output.tensors.resize(results);
    return output;
  }

  // LibTorch's own order, for who watches it.
  FunctionOutput in_three_parts(const FunctionCall& call, const char* why) {
    note_three_parts(why);
    FunctionOutput output = call.function(call.inputs);
    backward(loss_of(output), call.inputs);
    without_history(output);
    update();
    return output;
  }

  FunctionOutput by_closure(const FunctionCall& call) {
    note_three_parts("LBFGS evaluates the loss itself");
    std::optional<FunctionOutput> first;
    update_([&] {
      FunctionOutput output = call.function(call.inputs);
      const at::Tensor loss = loss_of(output);
      backward(loss, call.inputs);
      without_history(output);
      if (!first) first = std::move(output);
      return loss;
    });
    drop_gradients();
    return std::move(*first);
  }

  void note_three_parts(const char* why) {
    ++stats_.three_parts;
    stats_.why_three_parts = why;
    tell_once(base::format("train_step runs as zero_grad(), backward() and step(): {}", why));
  }

  // What fails leaves the gradients that there were.
  void backward(const at::Tensor& loss, const Tensors& inputs) {
    refuse_other_leaves(loss, inputs);
    Tensors before;
    for (const at::Tensor& parameter : trained_) before.push_back(parameter.grad());
    if (micro_batch_ == 0) drop_gradients();
    try {
      loss.backward();
    } catch (...) {
      for (size_t i = 0; i < trained_.size(); ++i) trained_[i].mutable_grad() = before[i];
      throw;
    }
  }

  void refuse_other_leaves(const at::Tensor& loss, const Tensors& inputs) const {
    if (options_.ignore_other_leaves) return;
    Tensors known = trained_;
    known.insert(known.end(), inputs.begin(), inputs.end());
    const std::string other = describe_other_leaf(loss, known);
    if (other.empty()) return;
    throw std::invalid_argument(
        base::format("hindcast::train_step: the loss depends on a leaf that requires a gradient and that the optimizer does not have: {}. "
                     "Give it to the "
                     "optimizer, call requires_grad_(false) on it, or set TrainStepOptions::ignore_other_leaves",
                     other));
  }

  void add_gradients(Tensors::const_iterator gradients) {
    Tensors sums, added;
    for (const at::Tensor& parameter : trained_) {
      const at::Tensor& gradient = *gradients++;
      at::Tensor& grad = parameter.mutable_grad();
      if (micro_batch_ == 0 || !grad.defined()) {
        grad = gradient;
      } else if (gradient.defined()) {
        sums.push_back(grad);
        added.push_back(gradient);
      }
    }
    if (!sums.empty()) at::_foreach_add_(sums, added);
  }

  void update() {
    if (++micro_batch_ < options_.accumulate) return;
    micro_batch_ = 0;
    update_();
    if (!options_.keep_gradients) drop_gradients();
  }

  void drop_gradients() {
    for (const at::Tensor& parameter : trained_) parameter.mutable_grad().reset();
  }

  torch::optim::Optimizer& optimizer_;
  const TrainStepOptions options_;
  const bool needs_closure_;
  AotCore gradients_;
  CompiledStep update_;
  RecordedSteps recorded_{update_, options_.cuda_graph_bytes};
  Tensors trained_;
  std::vector<std::pair<uint64_t, Tensors>> lists_;
  uint64_t list_ = 0, last_list_ = 0;
  uint32_t micro_batch_ = 0;
  TrainStepStats stats_;
};

StepCore::StepCore(torch::optim::Optimizer& optimizer, TrainStepOptions options)
    : implementation_(std::make_unique<Implementation>(optimizer, std::move(options))) {}
StepCore::StepCore(StepCore&&) noexcept = default;
StepCore& StepCore::operator=(StepCore&&) noexcept = default;
StepCore::~StepCore() = default;

FunctionOutput StepCore::call(const FunctionCall& call) { return implementation_->call(call); }
double StepCore::grad_norm() const { return implementation_->grad_norm(); }
TrainStepStats StepCore::stats() const { return implementation_->stats(); }
void StepCore::reset() { implementation_->reset(); }

}  // namespace hindcast::engine
