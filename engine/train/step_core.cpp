#include "hindcast/detail/step_core.h"

#include "base/format.h"
#include "capture/recorder/recorder.h"
#include "engine/aot/separate_gradients.h"
#include "engine/aot/warn_once.h"
#include "engine/optim/step_parts.h"
#include "engine/train/recorded_step.h"
#include "engine/train/watched_leaves.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <unordered_set>
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

const at::Tensor& loss_of(const detail::FunctionOutput& output) {
  if (output.tensors.empty() || !output.tensors[0].defined())
    throw std::invalid_argument("hindcast::train_step: the function returned no loss: its first tensor is the loss");
  return output.tensors[0];
}

// The gradient in the layout that AccumulateGrad would give to the leaf tensor.
at::Tensor as_gradient_of(const at::Tensor& parameter, const at::Tensor& gradient) {
  namespace utils = torch::autograd::utils;
  if (!gradient.defined() || gradient.layout() != at::kStrided || utils::obeys_layout_contract(gradient, parameter)) return gradient;
  return utils::clone_obey_contract(gradient, parameter);
}

void without_history(detail::FunctionOutput& output) {
  for (at::Tensor& tensor : output.tensors) {
    if (tensor.defined()) tensor = tensor.detach();
  }
}

// `.grad()` of all parameters before the step, restored if the step fails.
class GradientsBefore {
 public:
  /// Resets them, as zero_grad() does, unless `are_kept`.
  GradientsBefore(const Tensors& parameters, bool are_kept) : parameters_(parameters) {
    gradients_.reserve(parameters.size());
    for (const at::Tensor& parameter : parameters) {
      gradients_.push_back(parameter.grad());
      if (!are_kept) parameter.mutable_grad().reset();
    }
  }
  void restore() const {
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
  }

 private:
  const Tensors& parameters_;
  Tensors gradients_;
};

bool are_same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& one, const at::Tensor& other) { return one.is_same(other); });
}

// Adds as AccumulateGrad does, for a `gradient` that only the leaf tensor holds.
void add_to(const at::Tensor& parameter, const at::Tensor& gradient) {
  at::Tensor& grad = parameter.mutable_grad();
  if (!gradient.defined()) return;
  if (!grad.defined()) {
    grad = gradient;
  } else if (grad.is_sparse() && !gradient.is_sparse()) {
    grad = gradient + grad;
  } else {
    grad.add_(gradient);
  }
}

}  // namespace
}  // namespace hindcast::engine

namespace hindcast::detail {

using namespace engine;

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
    const GradientsBefore before(all_, /*are_kept=*/micro_batch_ != 0);
    FunctionOutput output;
    try {
      const char* const why = why_three_parts(call.inputs);
      if (why == nullptr && may_be_recorded()) {
        if (auto recorded = record(call)) return std::move(*recorded);
      }
      output = why == nullptr ? in_one_program(call) : in_three_parts(call, why);
    } catch (...) {
      before.restore();
      throw;
    }
    update();
    return output;
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
    forget_programs();
    has_inner_gradients_ = false;
  }

 private:
  void forget_programs() {
    gradients_.reset();
    recorded_.forget();
    lists_.clear();
  }

  bool has_same_parameters() const {
    size_t number = 0;
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& one : group.params()) {
        if (number == all_.size() || !one.is_same(all_[number]) || one.requires_grad() != requires_grad_[number]) return false;
        ++number;
      }
    }
    return number == all_.size();
  }

  // Sets all_, trained_ and list_. A program is for one list of trained parameters. Lists are kept while they have programs, so that a new
  // parameter does not get the address of one in a list.
  void find_trained() {
    if (list_ != 0 && has_same_parameters()) return;
    list_ = 0;
    all_ = all_parameters(optimizer_);
    requires_grad_.clear();
    trained_.clear();
    std::unordered_set<const at::TensorImpl*> seen;
    for (const at::Tensor& one : all_) {
      requires_grad_.push_back(one.requires_grad());
      if (one.requires_grad() && seen.insert(one.unsafeGetTensorImpl()).second) trained_.push_back(one);
    }
    if (trained_.empty()) throw std::invalid_argument("hindcast::train_step: none of the optimizer's parameters requires a gradient");
    const auto found = std::find_if(lists_.begin(), lists_.end(), [&](const auto& list) { return are_same(trained_, list.second); });
    if (found != lists_.end()) {
      list_ = found->first;
      return;
    }
    constexpr size_t kMostLists = 8;
    if (lists_.size() == kMostLists) forget_programs();
    list_ = ++last_list_;
    lists_.emplace_back(list_, trained_);
  }

  // A program differentiates up to its arguments. An argument's own history would get no gradient and be a constant of the program.
  const char* why_three_parts(const Tensors& inputs) const {
    if (has_inner_gradients_) return "the function makes gradients itself, as by backward()";
    for (const at::Tensor& input : inputs) {
      if (!input.defined() || !input.requires_grad()) continue;
      if (!input.is_leaf()) return "an argument has a history";
      const auto is_input = [&](const at::Tensor& parameter) { return parameter.is_same(input); };
      if (std::any_of(trained_.begin(), trained_.end(), is_input)) return "an argument is a parameter";
    }
    return why_watched(trained_);
  }

  // In a trace and in a comparison, `run` returns the loss and gradients of torch::autograd::grad(). An eager call is LibTorch's
  // backward(): the function may call backward() itself, or contain nodes that grad() refuses.
  template <class Call>
  FunctionOutput with_gradients(const FunctionCall& call, const Call& then) {
    const bool is_grad_enabled = at::GradMode::is_enabled();
    const auto run = [&](const Tensors& tensors) {
      const at::AutoGradMode grad_mode(is_grad_enabled);
      FunctionOutput output = call.function(tensors);
      const at::Tensor loss = loss_of(output);
      refuse_other_leaves(loss, tensors);
      const bool is_eager = capture::Recorder::current() == nullptr && are_same(tensors, call.inputs) && options_.aot.check_every == 0;
      Tensors gradients(trained_.size());
      if (is_eager) {
        loss.backward();
      } else {
        gradients = torch::autograd::grad({loss}, trained_, {}, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
      }
      without_history(output);
      for (size_t i = 0; i < trained_.size(); ++i) output.tensors.push_back(as_gradient_of(trained_[i], gradients[i]));
      output.owned = trained_.size();
      return output;
    };
    FunctionCall whole{call.inputs, call.facts, call.is_static, run, call.has_owner};
    whole.facts.append(reinterpret_cast<const char*>(&list_), sizeof(list_));
    return then(whole);
  }

  FunctionOutput in_one_program(const FunctionCall& call) {
    FunctionOutput output = with_gradients(call, [&](const FunctionCall& whole) { return gradients_.call(whole); });
    const auto first = output.tensors.end() - static_cast<std::ptrdiff_t>(trained_.size());
    const bool gives_gradients = std::any_of(first, output.tensors.end(), [](const at::Tensor& gradient) { return gradient.defined(); });
    if (gives_gradients && micro_batch_ == 0) {
      has_inner_gradients_ = std::any_of(trained_.begin(), trained_.end(), [](const at::Tensor& one) { return one.grad().defined(); });
      if (has_inner_gradients_) forget_programs();
    }
    take_gradients(output);
    return output;
  }

  void take_gradients(FunctionOutput& output) {
    const size_t results = output.tensors.size() - trained_.size();
    // Accumulation, clipping, hooks, or the optimizer's own code may write to them.
    separate_gradients(std::span(output.tensors).subspan(results), SameTensor::Copied);
    for (size_t i = 0; i < trained_.size(); ++i) add_to(trained_[i], output.tensors[results + i]);
    output.tensors.resize(results);
  }

  // Runs the function and backward() in LibTorch's own order, as hooks and DistributedDataParallel expect.
  FunctionOutput in_three_parts(const FunctionCall& call, const char* why) {
    note_three_parts(why);
    FunctionOutput output = call.function(call.inputs);
    const at::Tensor loss = loss_of(output);
    loss.backward();
    without_history(output);
    return output;
  }

  FunctionOutput by_closure(const FunctionCall& call) {
    note_three_parts("LBFGS evaluates the loss itself");
    std::optional<FunctionOutput> first;
    const GradientsBefore before(all_, /*are_kept=*/true);
    try {
      update_([&] {
        drop_gradients();
        FunctionOutput output = call.function(call.inputs);
        const at::Tensor loss = loss_of(output);
        loss.backward();
        without_history(output);
        if (!first) first = std::move(output);
        return loss;
      });
    } catch (...) {
      before.restore();
      throw;
    }
    if (!options_.keep_gradients) drop_gradients();
    return std::move(*first);
  }

  void note_three_parts(const char* why) {
    ++stats_.three_parts;
    stats_.why_three_parts = why;
    warn_once(base::format("train_step runs as zero_grad(), backward() and step(): {}", why));
  }

  bool may_be_recorded() const {
    return options_.cuda_graphs && options_.accumulate == 1 && !options_.keep_gradients &&
           !(options_.clip && options_.clip->error_if_nonfinite);
  }

  std::optional<FunctionOutput> record(const FunctionCall& call) {
    std::optional<FunctionOutput> output;
    with_gradients(call, [&](const FunctionCall& whole) {
      const auto all = [&](const FunctionCall& recorded) {
        FunctionOutput made = gradients_.call(recorded);
        take_gradients(made);
        update_();
        return made;
      };
      const auto updated = [&](const AotHit& hit) {
        Tensors with_gradient;
        const size_t results = hit.defined.size() - trained_.size();
        for (size_t i = 0; i < trained_.size(); ++i) {
          if (hit.defined[results + i]) with_gradient.push_back(trained_[i]);
        }
        return with_gradient;
      };
      output = recorded_.run({whole, gradients_, trained_, all, updated});
      return FunctionOutput();
    });
    return output;
  }

  void refuse_other_leaves(const at::Tensor& loss, const Tensors& inputs) const {
    if (options_.ignore_other_leaves) return;
    Tensors known = trained_;
    known.insert(known.end(), inputs.begin(), inputs.end());
    const std::string other = describe_other_leaf(loss, known);
    if (other.empty()) return;
    throw std::invalid_argument(
        base::format("hindcast::train_step: the loss depends on a leaf that requires a gradient and that the optimizer does not have: {}. "
                     "Give it to the optimizer, call requires_grad_(false) on it, or set TrainStepOptions::ignore_other_leaves",
                     other));
  }

  void update() {
    if (++micro_batch_ < options_.accumulate) return;
    micro_batch_ = 0;
    update_();
    if (!options_.keep_gradients) drop_gradients();
  }

  void drop_gradients() {
    for (const at::Tensor& parameter : all_) parameter.mutable_grad().reset();
  }

  torch::optim::Optimizer& optimizer_;
  const TrainStepOptions options_;
  const bool needs_closure_;
  AotCore gradients_;
  CompiledStep update_;
  RecordedSteps recorded_{StepParts::of(update_), options_.cuda_graph_bytes};
  Tensors all_;                      // the optimizer's parameters in the last call
  std::vector<bool> requires_grad_;  // of each
  Tensors trained_;                  // those that require a gradient, each once
  std::vector<std::pair<uint64_t, Tensors>> lists_;
  uint64_t list_ = 0, last_list_ = 0;  // 0: trained_ is in no list
  uint32_t micro_batch_ = 0;
  bool has_inner_gradients_ = false;  // the function calls backward() itself, which a program would not repeat
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

}  // namespace hindcast::detail
