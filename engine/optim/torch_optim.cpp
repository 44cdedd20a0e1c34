#include "engine/optim/torch_optim.h"

#include "engine/optim/changed.h"
#include "engine/optim/rules.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <type_traits>
#include <typeinfo>

namespace hindcast::engine {
namespace {

using torch::optim::OptimizerParamGroup;

at::Tensor zeros_of(const at::Tensor& tensor) { return torch::zeros_like(tensor, at::MemoryFormat::Preserve); }

// `Class`: an optimizer with the types of its options and state.
template <class Class, class ClassOptions, class ClassState>
class Of : public TorchOptim {
 public:
  explicit Of(Class& optimizer) : optimizer_(optimizer) {}

  bool makes_state(OptimizerParamGroup& group, const at::Tensor& parameter) const override {
    if constexpr (std::is_same_v<ClassOptions, torch::optim::SGDOptions>) {
      if (options_of(group).momentum() == 0) return false;
    }
    return state_of(parameter) == nullptr;
  }

  void take_back(const at::Tensor& parameter) override {
    if constexpr (!std::is_same_v<ClassState, torch::optim::SGDParamState>) {
      if (auto* const state = state_of(parameter)) state->step(state->step() - 1);
    }
  }

  void step_alone(OptimizerParamGroup& group, const at::Tensor& parameter) override {
    // The constructor may create state, which is replaced by the existing one, and rejects some options that a step accepts. So it gets the
    // options that the optimizer was made with, and the group keeps its own.
    const auto& made_with = static_cast<const ClassOptions&>(optimizer_.defaults());
    Class alone(std::vector<OptimizerParamGroup>{OptimizerParamGroup({parameter}, group.options().clone())}, made_with);
    void* const key = parameter.unsafeGetTensorImpl();
    alone.state().clear();
    auto& states = optimizer_.state();
    if (const auto found = states.find(key); found != states.end()) alone.state()[key] = std::move(found->second);
    const auto give_back = [&] {
      if (const auto found = alone.state().find(key); found != alone.state().end()) states[key] = std::move(found->second);
    };
    try {
      alone.step();
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
  }

 protected:
  static const ClassOptions& options_of(const OptimizerParamGroup& group) { return static_cast<const ClassOptions&>(group.options()); }

  ClassState* state_of(const at::Tensor& parameter) const {
    const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
    return found == optimizer_.state().end() ? nullptr : static_cast<ClassState*>(found->second.get());
  }
  void set_state(const at::Tensor& parameter, std::unique_ptr<ClassState> state) const {
    optimizer_.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }

  Class& optimizer_;
};

class OfSgd final : public Of<torch::optim::SGD, torch::optim::SGDOptions, torch::optim::SGDParamState> {
 public:
  using Of::Of;

  // SGD's own step writes through data(), so a graph that saved the parameter does not notice; neither does this.
  std::string_view add(Updates& updates, OptimizerParamGroup& group, const at::Tensor& parameter) override {
    const auto& options = options_of(group);
    const SgdSettings settings{options.lr(), options.momentum(), options.dampening(), options.weight_decay(), options.nesterov()};
    if (settings.momentum == 0) return updates.add(sgd(settings, false), {&parameter, &parameter.grad()});
    if (const auto* const state = state_of(parameter)) {
      const std::string_view why = updates.add(sgd(settings, false), {&parameter, &parameter.grad(), &state->momentum_buffer()});
      if (why.empty()) has_changed(state->momentum_buffer());
      return why;
    }
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(torch::empty_like(parameter, at::MemoryFormat::Preserve).detach());
    const std::string_view why = updates.add(sgd(settings, true), {&parameter, &parameter.grad(), &state->momentum_buffer()});
    if (why.empty()) set_state(parameter, std::move(state));
    return why;
  }
};

// Caches the last update: settings and step are mostly the same for all parameters.
template <class Settings, class Make>
const Update& update_at(int64_t step, const Settings& settings, int64_t& last_step, Settings& last_settings, Update& last, Make make) {
  if (last.formula == nullptr || last_step != step || !(last_settings == settings)) {
    last = make(settings, static_cast<double>(step));
    last_step = step;
    last_settings = settings;
  }
  return last;
}

// Adam and AdamW.
template <class Class, class ClassOptions, class ClassState, bool is_decoupled>
class OfAdam final : public Of<Class, ClassOptions, ClassState> {
 public:
  using Base = Of<Class, ClassOptions, ClassState>;
  using Base::Base;

  std::string_view add(Updates& updates, OptimizerParamGroup& group, const at::Tensor& parameter) override {
    const auto& options = Base::options_of(group);
    const auto [beta1, beta2] = options.betas();
    const AdamSettings settings{options.lr(), beta1, beta2, options.eps(), options.weight_decay(), is_decoupled, options.amsgrad()};
    auto* state = Base::state_of(parameter);
    std::unique_ptr<ClassState> made;
    if (state == nullptr) {
      made = std::make_unique<ClassState>();
      made->exp_avg(zeros_of(parameter));
      made->exp_avg_sq(zeros_of(parameter));
      if (options.amsgrad()) made->max_exp_avg_sq(zeros_of(parameter));
      state = made.get();
    }
    const int64_t step = state->step() + 1;
    c10::SmallVector<const at::Tensor*, 5> tensors = {&parameter, &parameter.grad(), &state->exp_avg(), &state->exp_avg_sq()};
    if (options.amsgrad()) tensors.push_back(&state->max_exp_avg_sq());
    const std::string_view why = updates.add(update_at(step, settings, step_, settings_, update_, adam), tensors);
    if (!why.empty()) return why;
    state->step(step);
    has_changed(parameter);
    for (size_t i = 2; i < tensors.size(); ++i) has_changed(*tensors[i]);
    if (made != nullptr) Base::set_state(parameter, std::move(made));
    return {};
  }

 private:
  int64_t step_ = 0;
  AdamSettings settings_;
  Update update_;
};

class OfRmsprop final : public Of<torch::optim::RMSprop, torch::optim::RMSpropOptions, torch::optim::RMSpropParamState> {
 public:
  using Of::Of;

  std::string_view add(Updates& updates, OptimizerParamGroup& group, const at::Tensor& parameter) override {
    const auto& options = options_of(group);
    const RmspropSettings settings{options.lr(),           options.alpha(),    options.eps(),
                                   options.weight_decay(), options.momentum(), options.centered()};
    auto* state = state_of(parameter);
    std::unique_ptr<torch::optim::RMSpropParamState> made;
    if (state == nullptr) {
      made = std::make_unique<torch::optim::RMSpropParamState>();
      made->square_avg(zeros_of(parameter));
      if (options.momentum() > 0) made->momentum_buffer(zeros_of(parameter));
      if (options.centered()) made->grad_avg(zeros_of(parameter));
      state = made.get();
    }
    c10::SmallVector<const at::Tensor*, 5> tensors = {&parameter, &parameter.grad(), &state->square_avg()};
    if (options.momentum() > 0) tensors.push_back(&state->momentum_buffer());
    if (options.centered()) tensors.push_back(&state->grad_avg());
    const std::string_view why = updates.add(rmsprop(settings), tensors);
    if (!why.empty()) return why;
    state->step(state->step() + 1);
    has_changed(parameter);
    for (size_t i = 2; i < tensors.size(); ++i) has_changed(*tensors[i]);
    if (made != nullptr) set_state(parameter, std::move(made));
    return {};
  }
};

class OfAdagrad final : public Of<torch::optim::Adagrad, torch::optim::AdagradOptions, torch::optim::AdagradParamState> {
 public:
  using Of::Of;

  std::string_view add(Updates& updates, OptimizerParamGroup& group, const at::Tensor& parameter) override {
    auto* const state = state_of(parameter);
    if (state == nullptr) return "it has no state";  // the optimizer's constructor creates it
    const auto& options = options_of(group);
    const AdagradSettings settings{options.lr(), options.lr_decay(), options.weight_decay(), options.eps()};
    const int64_t step = state->step() + 1;
    const Update& update = update_at(step, settings, step_, settings_, update_, adagrad);
    const std::string_view why = updates.add(update, {&parameter, &parameter.grad(), &state->sum()});
    if (!why.empty()) return why;
    state->step(step);
    has_changed(parameter);
    has_changed(state->sum());
    return {};
  }

 private:
  int64_t step_ = 0;
  AdagradSettings settings_;
  Update update_;
};

using OfAdamItself = OfAdam<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState, false>;
using OfAdamW = OfAdam<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState, true>;

}  // namespace

std::unique_ptr<TorchOptim> TorchOptim::of(torch::optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(torch::optim::SGD)) return std::make_unique<OfSgd>(static_cast<torch::optim::SGD&>(optimizer));
  if (type == typeid(torch::optim::Adam)) return std::make_unique<OfAdamItself>(static_cast<torch::optim::Adam&>(optimizer));
  if (type == typeid(torch::optim::AdamW)) return std::make_unique<OfAdamW>(static_cast<torch::optim::AdamW&>(optimizer));
  if (type == typeid(torch::optim::RMSprop)) return std::make_unique<OfRmsprop>(static_cast<torch::optim::RMSprop&>(optimizer));
  if (type == typeid(torch::optim::Adagrad)) return std::make_unique<OfAdagrad>(static_cast<torch::optim::Adagrad&>(optimizer));
  return nullptr;
}

}  // namespace hindcast::engine
