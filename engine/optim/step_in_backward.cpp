#include "hindcast/step_in_backward.h"

#include "base/fork.h"
#include "engine/optim/changed.h"
#include "engine/optim/torch_optim.h"
#include "hindcast/grad_ready.h"

#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace hindcast {

class StepInBackward::Impl {
 public:
  explicit Impl(torch::optim::Optimizer& optimizer) : optimizer_(optimizer), with_(engine::TorchOptim::of(optimizer)) {
    if (with_ == nullptr) throw std::invalid_argument("step_in_backward: the optimizer is none of SGD, Adam, AdamW, RMSprop and Adagrad");
  }

  /// Where a parameter was when its hook was registered.
  struct Place {
    size_t group, number;
  };

  // Updates a parameter whose gradient is final. Backwards of several threads and devices may call this.
  void step(Place place, const at::Tensor& parameter) {
    if (!parameter.grad().defined()) return;
    const at::NoGradGuard no_grad;
    const std::lock_guard lock(mutex_);
    torch::optim::OptimizerParamGroup* const group = group_of(parameter, place);
    if (group == nullptr) return;
    updates_.clear();
    if (with_->add(updates_, *group, parameter).empty()) {
      updates_.run();
      ++compiled;
    } else {
      with_->step_alone(*group, parameter);
      ++original;
    }
    // The rest of the backward may read the parameter through detach(), and so may a retained graph. SGD itself does not bump the version.
    engine::has_changed(parameter);
    parameter.mutable_grad() = at::Tensor();
  }

  void remove() {
    for (GradReadyHandle& handle : std::exchange(handles, {})) handle.remove();
  }

  std::vector<GradReadyHandle> handles;
  std::atomic<uint64_t> compiled = 0, original = 0;

 private:
  // nullptr if the optimizer no longer has the parameter. Groups may have been removed or reordered since.
  torch::optim::OptimizerParamGroup* group_of(const at::Tensor& parameter, Place place) {
    auto& groups = optimizer_.param_groups();
    if (place.group < groups.size()) {
      const auto& there = groups[place.group].params();
      if (place.number < there.size() && there[place.number].is_same(parameter)) return &groups[place.group];
    }
    for (auto& group : groups) {
      const auto& params = group.params();
      if (std::any_of(params.begin(), params.end(), [&](const at::Tensor& one) { return one.is_same(parameter); })) return &group;
    }
    return nullptr;
  }

  torch::optim::Optimizer& optimizer_;
  const std::unique_ptr<engine::TorchOptim> with_;
  // ForkRank::Setup, since a step may compile a kernel.
  base::ForkSafe<std::mutex> mutex_{base::ForkRank::Setup};
  engine::Updates updates_;
};

StepInBackward::StepInBackward(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepInBackward::StepInBackward(StepInBackward&&) noexcept = default;
StepInBackward& StepInBackward::operator=(StepInBackward&& other) noexcept {
  if (impl_ != nullptr) impl_->remove();
  impl_ = std::move(other.impl_);
  return *this;
}
StepInBackward::~StepInBackward() {
  if (impl_ != nullptr) impl_->remove();
}

uint64_t StepInBackward::compiled() const { return impl_->compiled.load(); }
uint64_t StepInBackward::original() const { return impl_->original.load(); }

StepInBackward step_in_backward(torch::optim::Optimizer& optimizer) {
  const auto impl = std::make_shared<StepInBackward::Impl>(optimizer);
  StepInBackward stepping(impl);  // unregisters the hooks if a later registration throws
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& params = groups[group].params();
    for (size_t number = 0; number < params.size(); ++number) {
      const StepInBackward::Impl::Place place{group, number};
      impl->handles.push_back(on_grad_ready(params[number], [weak = std::weak_ptr(impl), place](const at::Tensor& ready) {
        if (const auto held = weak.lock()) held->step(place, ready);
      }));
    }
  }
  return stepping;
}

}  // namespace hindcast
