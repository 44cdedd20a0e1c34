#include "hindcast/compiled_step.h"

#include "base/log.h"
#include "engine/call_state.h"
#include "engine/optim/clip.h"
#include "engine/optim/step_parts.h"
#include "engine/optim/torch_optim.h"

#include <c10/util/ScopeExit.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>

#include <set>
#include <unordered_set>
#include <utility>

namespace hindcast {

class CompiledStep::Impl final : public detail::StepParts {
 public:
  Impl(torch::optim::Optimizer& optimizer, std::optional<ClipGradNorm> clip)
      : optimizer_(optimizer), clip_(clip), with_(engine::TorchOptim::of(optimizer)) {}

  at::Tensor step(const Closure& closure) {
    if (with_ == nullptr) return step_originally(closure, "its class is none of SGD, Adam, AdamW, RMSprop and Adagrad");
    if (!engine::has_usual_dispatch_state()) return step_originally(closure, "a mode of dispatch is on");
    at::Tensor loss;
    if (closure) {
      const at::AutoGradMode enable_grad(true);
      loss = closure();
    }
    const torch::NoGradGuard no_grad;
    updates_.clear();
    counted_.clear();
    updates_.set_factor(clip_gradients());
    for (auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (parameter.grad().defined()) add(group, parameter);
      }
    }
    updates_.run();
    return loss;
  }

  detail::StepFactor factor() const override { return {norm_, factor_, updates_.factor_as_float()}; }

  bool gather(const detail::StepFactor& factor) override {
    const torch::NoGradGuard no_grad;
    updates_.clear();
    updates_.set_factor(factor.factor, factor.factor_as_float);
    norm_ = factor.norm;
    factor_ = factor.factor;
    counted_.clear();
    for (auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        if (with_ != nullptr && !with_->makes_state(group, parameter) && with_->add(updates_, group, parameter).empty()) {
          note_counted(parameter);
          continue;
        }
        take_back();
        return false;
      }
    }
    return true;
  }

  bool run() override {
    const torch::NoGradGuard no_grad;
    updates_.run();
    return true;
  }

  // Also called from a destructor, when the device may be lost: there is then no norm to report.
  void let_go(const detail::StepFactor& factor) override {
    updates_.let_go(factor.factor, factor.factor_as_float);
    if (factor_.is_same(factor.factor)) factor_.reset();
    if (!norm_.defined() || !norm_.is_same(factor.norm)) return;
    try {
      norm_ = norm_.clone();
    } catch (const std::exception&) {
      norm_.reset();
    }
  }

  void take_back() override {
    for (const at::Tensor* parameter : counted_) with_->take_back(*parameter);
    counts.compiled -= counted_.size();
    counted_.clear();
    updates_.clear();
  }

  bool makes_state(const std::vector<at::Tensor>& updated) override {
    if (with_ == nullptr) return false;
    std::unordered_set<const at::TensorImpl*> of_updated;
    for (const at::Tensor& parameter : updated) of_updated.insert(parameter.unsafeGetTensorImpl());
    for (auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        if (of_updated.contains(parameter.unsafeGetTensorImpl()) && with_->makes_state(group, parameter)) return true;
      }
    }
    return false;
  }

  uint64_t compiled() const override { return counts.compiled; }
  uint64_t original() const override { return counts.original; }

  double grad_norm() const { return norm_.defined() ? norm_.item<double>() : 0; }

  Counts counts;

 private:
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const auto& group : optimizer_.param_groups()) all.insert(all.end(), group.params().begin(), group.params().end());
    return all;
  }

  void clip_originally() {
    norm_ = at::scalar_tensor(torch::nn::utils::clip_grad_norm_(parameters(), clip_->max_norm, clip_->norm_type, clip_->error_if_nonfinite),
                              at::kDouble);
  }

  // The factor for kernels; undefined if gradients are not scaled, or if gradients have already been multiplied.
  at::Tensor clip_gradients() {
    if (!clip_) return {};
    std::vector<at::Tensor> gradients;
    for (const auto& group : optimizer_.param_groups()) {
      gradients.reserve(gradients.size() + group.params().size());
      for (const at::Tensor& parameter : group.params()) {
        if (const at::Tensor& gradient = parameter.grad(); gradient.defined()) gradients.push_back(gradient);
      }
    }
    if (const auto clipped = engine::clip(*clip_, gradients, std::move(factor_))) {
      norm_ = clipped->norm;
      return factor_ = clipped->factor;
    }
    clip_originally();
    return factor_ = at::Tensor();
  }

  void note_counted(const at::Tensor& parameter) {
    ++counts.compiled;
    counted_.push_back(&parameter);
  }

  void add(torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) {
    const std::string_view why = with_->add(updates_, group, parameter);
    if (why.empty()) return note_counted(parameter);
    note_original(1, why);
    updates_.add_alone(parameter, [this, &group, parameter] {
      if (!factor_.defined()) return with_->step_alone(group, parameter);
      const at::Tensor unclipped = parameter.grad();
      const auto put_back = c10::make_scope_exit([&] { parameter.mutable_grad() = unclipped; });
      parameter.mutable_grad() = unclipped * factor_.to(unclipped.scalar_type());
      with_->step_alone(group, parameter);
    });
  }

  // A class may call the closure more than once: gradients are clipped each time.
  at::Tensor step_originally(const Closure& closure, std::string_view why) {
    const auto clipped = [&] {
      const at::AutoGradMode enable_grad(true);
      at::Tensor loss = closure();
      if (clip_) clip_originally();
      return loss;
    };
    if (!closure && clip_) clip_originally();
    const at::Tensor loss = closure ? optimizer_.step(clipped) : optimizer_.step();
    for (const at::Tensor& parameter : parameters()) {
      if (parameter.grad().defined()) note_original(1, why);
    }
    return loss;
  }

  void note_original(uint64_t updates, std::string_view why) {
    counts.original += updates;
    counts.why_original = why;
    if (said_.emplace(why).second) HC_LOG(Fallbacks, Warning, "compiled_step: the optimizer's own code updates a parameter: {}", why);
  }

  torch::optim::Optimizer& optimizer_;
  const std::optional<ClipGradNorm> clip_;
  const std::unique_ptr<engine::TorchOptim> with_;
  engine::Updates updates_;
  at::Tensor norm_, factor_;
  std::vector<const at::Tensor*>
      counted_;  // parameters whose step the last step counted; point into the optimizer's groups, valid only right after it
  std::set<std::string, std::less<>> said_;
};

CompiledStep::CompiledStep(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledStep::CompiledStep(CompiledStep&&) noexcept = default;
CompiledStep& CompiledStep::operator=(CompiledStep&&) noexcept = default;
CompiledStep::~CompiledStep() = default;

detail::StepParts& detail::StepParts::of(CompiledStep& step) { return *step.impl_; }

at::Tensor CompiledStep::operator()(const Closure& closure) { return impl_->step(closure); }
double CompiledStep::grad_norm() const { return impl_->grad_norm(); }
const CompiledStep::Counts& CompiledStep::counts() const { return impl_->counts; }

CompiledStep compiled_step(torch::optim::Optimizer& optimizer, std::optional<ClipGradNorm> clip) {
  return CompiledStep(std::make_unique<CompiledStep::Impl>(optimizer, clip));
}

}  // namespace hindcast
