#include "python/csrc/optim.h"

#include "base/fork.h"
#include "engine/call_state.h"
#include "engine/optim/changed.h"
#include "engine/optim/clip.h"
#include "engine/optim/rules.h"
#include "engine/optim/step_counts.h"
#include "engine/optim/updates.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

namespace hindcast::python {
namespace {

// Updates objects not in use by a call, kept because they cache kernels.
struct Idle {
  base::ForkSafe<std::mutex> mutex{base::ForkRank::Leaf};
  std::vector<std::unique_ptr<engine::Updates>> updates;
};
Idle& idle() {
  static constinit base::MadeOnce<Idle> idle;
  return idle.get();
}

class BorrowedUpdates {
 public:
  BorrowedUpdates() {
    {
      const std::lock_guard lock(idle().mutex);
      if (!idle().updates.empty()) {
        updates_ = std::move(idle().updates.back());
        idle().updates.pop_back();
      }
    }
    if (updates_ == nullptr) updates_ = std::make_unique<engine::Updates>();
  }
  ~BorrowedUpdates() {
    updates_->clear();
    updates_->set_factor({});
    const std::lock_guard lock(idle().mutex);
    idle().updates.push_back(std::move(updates_));
  }
  BorrowedUpdates(const BorrowedUpdates&) = delete;
  BorrowedUpdates& operator=(const BorrowedUpdates&) = delete;

  engine::Updates* operator->() const { return updates_.get(); }

 private:
  std::unique_ptr<engine::Updates> updates_;
};

struct Group {
  at::TensorList parameters;
  c10::SmallVector<at::TensorList, 3> state;
  at::TensorList steps;  // empty if steps are not counted
};

GradientFactor factor_of(const Group& group, bool maximize, const GradientFactor& factor) {
  if (!maximize) return factor;
  if (factor.factor.defined()) return -factor;
  return GradientFactor::of(at::full({}, -1., at::TensorOptions(group.parameters[0].device()).dtype(at::kDouble)));
}

Updated none_of(const Group& group, const std::string& why) {
  Updated none;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    if (!group.parameters[i].grad().defined()) continue;
    std::get<1>(none).push_back(static_cast<int64_t>(i));
    std::get<2>(none).push_back(why);
  }
  return none;
}

/// From a parameter's index and its step count.
using UpdateOf = std::function<const engine::Update&(size_t, double)>;

// One group in one step.
class GroupStep {
 public:
  GroupStep(Group group, const GradientFactor& factor) : group_(std::move(group)), factor_(factor.factor) {
    updates_->set_factor(factor.factor, factor.as_float);
  }

  Updated run(const UpdateOf& update_of) {
    Updated result;
    auto& [compiled, refused, reasons] = result;
    std::vector<size_t> added;
    for (size_t i = 0; i < group_.parameters.size(); ++i) {
      const at::Tensor& parameter = group_.parameters[i];
      at::Tensor gradient = parameter.grad();
      if (!gradient.defined()) continue;
      gradients_.push_back(std::move(gradient));
      if (const std::string_view why = add(i, update_of); !why.empty()) {
        refused.push_back(static_cast<int64_t>(i));
        reasons.emplace_back(why);
        updates_->add_alone(parameter, [] {});  // the caller does it, after the others
      } else {
        added.push_back(i);
      }
    }
    if (!refused.empty() && !updates_->are_apart()) {
      steps_.take_all_back();
      return none_of(group_, "parameters or gradients share memory, and kernels cannot update all of them: " + reasons.back());
    }
    for (const size_t i : added) mark(i);
    steps_.done();
    updates_->run();
    compiled = static_cast<int64_t>(added.size());
    return result;
  }

 private:
  // Returns "" if the parameter will be updated, with its step counted; otherwise the reason, and nothing has changed.
  std::string_view add(size_t i, const UpdateOf& update_of) {
    const at::Tensor& parameter = group_.parameters[i];
    if (parameter.is_inference()) return "it is an inference tensor";
    if (factor_.defined() && factor_.device() != parameter.device())
      return "it lies on another device than what gradients are multiplied by";
    c10::SmallVector<const at::Tensor*, 5> tensors = {&parameter, &gradients_.back()};
    for (const at::TensorList& state : group_.state) tensors.push_back(&state[i]);
    if (group_.steps.empty()) return updates_->add(update_of(i, 0), tensors);
    if (const std::string_view why = engine::StepCounts::why_not(group_.steps[i]); !why.empty()) return why;
    const std::string_view why = updates_->add(update_of(i, steps_.count(group_.steps[i])), tensors);
    if (!why.empty()) steps_.take_back();
    return why;
  }

  void mark(size_t i) {
    engine::has_changed(group_.parameters[i]);
    for (const at::TensorList& state : group_.state) engine::has_changed(state[i]);
  }

  const Group group_;
  const at::Tensor factor_;
  std::vector<at::Tensor> gradients_;  // kept alive: another thread may reset a parameter's .grad
  engine::StepCounts steps_;
  BorrowedUpdates updates_;
};

Updated update(Group group, bool maximize, const GradientFactor& factor, const UpdateOf& update_of) {
  const auto is_as_long = [&](const at::TensorList& list) { return list.size() == group.parameters.size(); };
  TORCH_CHECK_VALUE(std::all_of(group.state.begin(), group.state.end(), is_as_long) && (group.steps.empty() || is_as_long(group.steps)),
                    "lists of state are not as long as the list of parameters");
  if (group.parameters.empty()) return {};
  if (!engine::has_usual_dispatch_state()) return none_of(group, "a mode of dispatch is on");
  const GradientFactor by = factor_of(group, maximize, factor);
  return GroupStep(std::move(group), by).run(update_of);
}

// The update at a step. Most parameters of a group are at the same one.
template <class Make>
UpdateOf at_step(Make make) {
  return [make, last = engine::Update(), last_step = 0.](size_t, double step) mutable -> const engine::Update& {
    if (last.formula == nullptr || step != last_step) {
      last = make(step);
      last_step = step;
    }
    return last;
  };
}

}  // namespace

GradientFactor GradientFactor::of(const std::optional<at::Tensor>& factor) {
  if (!factor || !factor->defined()) return {};
  return {*factor, engine::as_float(*factor)};
}

GradientFactor GradientFactor::operator-() const { return {-factor, -as_float}; }

Updated update_sgd(const GradientFactor& factor, at::TensorList parameters, at::TensorList buffers, at::IntArrayRef first, double lr,
                   double momentum, double dampening, double weight_decay, bool nesterov, bool maximize) {
  const engine::SgdSettings settings{lr, momentum, dampening, weight_decay, nesterov};
  const engine::Update with_buffer = engine::sgd(settings, false), without_buffer = engine::sgd(settings, true);
  Group group{parameters, {}, {}};
  if (momentum != 0) group.state.push_back(buffers);
  return update(std::move(group), maximize, factor, [&](size_t i, double) -> const engine::Update& {
    return std::binary_search(first.begin(), first.end(), static_cast<int64_t>(i)) ? without_buffer : with_buffer;
  });
}

Updated update_adam(const GradientFactor& factor, at::TensorList parameters, at::TensorList exp_avgs, at::TensorList exp_avg_sqs,
                    at::TensorList max_exp_avg_sqs, at::TensorList steps, double lr, double beta1, double beta2, double eps,
                    double weight_decay, bool is_decoupled, bool amsgrad, bool maximize) {
  const engine::AdamSettings settings{lr, beta1, beta2, eps, weight_decay, is_decoupled, amsgrad};
  Group group{parameters, {exp_avgs, exp_avg_sqs}, steps};
  if (amsgrad) group.state.push_back(max_exp_avg_sqs);
  return update(std::move(group), maximize, factor, at_step([settings](double step) { return engine::adam(settings, step); }));
}

Updated update_rmsprop(const GradientFactor& factor, at::TensorList parameters, at::TensorList square_avgs, at::TensorList buffers,
                       at::TensorList grad_avgs, at::TensorList steps, double lr, double alpha, double eps, double weight_decay,
                       double momentum, bool centered, bool maximize) {
  const engine::Update every = engine::rmsprop({lr, alpha, eps, weight_decay, momentum, centered});
  Group group{parameters, {square_avgs}, steps};
  if (momentum > 0) group.state.push_back(buffers);
  if (centered) group.state.push_back(grad_avgs);
  return update(std::move(group), maximize, factor, [&](size_t, double) -> const engine::Update& { return every; });
}

Updated update_adagrad(const GradientFactor& factor, at::TensorList parameters, at::TensorList sums, at::TensorList steps, double lr,
                       double lr_decay, double weight_decay, double eps, bool maximize) {
  const engine::AdagradSettings settings{lr, lr_decay, weight_decay, eps};
  return update({parameters, {sums}, steps}, maximize, factor,
                at_step([settings](double step) { return engine::adagrad(settings, step); }));
}

std::vector<at::Tensor> clip_gradients(at::TensorList parameters, double max_norm, double norm_type) {
  if (!engine::has_usual_dispatch_state()) return {};
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  const auto clipped = engine::clip({max_norm, norm_type, /*error_if_nonfinite=*/false}, gradients);
  if (!clipped) return {};
  at::ScalarType type = gradients[0].scalar_type();
  for (const at::Tensor& gradient : gradients) type = c10::promoteTypes(type, gradient.scalar_type());
  const at::Tensor& norm = clipped->norm;
  return {type == at::kFloat ? engine::as_float(norm) : norm.to(type), clipped->factor};
}

}  // namespace hindcast::python
