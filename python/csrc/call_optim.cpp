#include "python/csrc/call_optim.h"

#include "base/check.h"
#include "python/csrc/call_times.h"
#include "python/csrc/optim.h"
#include "python/csrc/torch_python.h"
#include "python/csrc/usual_thread.h"

#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace hindcast::python {
namespace {

struct OptimizersInPython {
  Object* classes = nullptr;
  Object* hooks = nullptr;  // dicts
  Object* compiler = nullptr;
  Object* own_steps = nullptr;  // by class: the step() that is known to be PyTorch's own
};
OptimizersInPython optimizers_in_python;  // references that are never released

struct OptimizerNames {
  Object* param_groups = interned("param_groups");
  Object* params = interned("params");
  Object* state = interned("state");
  Object* step = interned("step");
  Object* wrapped = interned("__wrapped__");
  Object* wrapped_by_scheduler = interned("_wrapped_by_lr_sched");
  Object* pre_hooks = interned("_optimizer_step_pre_hooks");
  Object* post_hooks = interned("_optimizer_step_post_hooks");
  Object* was_called = interned("_opt_called");
  Object* grad_scale = interned("grad_scale");
  Object* found_inf = interned("found_inf");
  Object* is_compiling = interned("_is_compiling_flag");
  Object* check = interned("_accelerator_graph_capture_health_check");
};
const OptimizerNames& optimizer_names() {
  static const OptimizerNames names;
  return names;
}

// The names of a group's settings, in the order of the class's update.
struct SettingNames {
  std::vector<Object*> numbers, switches;
};
const SettingNames& setting_names(OptimizerClass of) {
  const auto names = [](std::initializer_list<const char*> texts) {
    std::vector<Object*> found;
    for (const char* text : texts) found.push_back(interned(text));
    return found;
  };
  static const std::array<SettingNames, 4> all{{
      {names({"lr", "momentum", "dampening", "weight_decay"}), names({"nesterov"})},
      {names({"lr", "eps", "weight_decay"}), names({"decoupled_weight_decay", "amsgrad"})},
      {names({"lr", "alpha", "eps", "weight_decay", "momentum"}), names({"centered"})},
      {names({"lr", "lr_decay", "weight_decay", "eps"}), {}},
  }};
  return all[static_cast<size_t>(of)];
}

struct GatheredGroup {
  Reference group;
  Reference list;  // of parameters
  std::vector<double> numbers;
  std::vector<bool> switches;
  double beta1 = 0, beta2 = 0;
  bool maximize = false;
  std::vector<Object*> objects;  // of parameters with a gradient
  std::vector<at::Tensor> parameters;
  std::array<std::vector<at::Tensor>, 3> state;
  std::vector<at::Tensor> steps;
};

Object* item_of(Object* dict, Object* key) {
  Object* const item = PyDict_GetItemWithError(dict, key);
  if (item == nullptr) PyErr_Clear();
  return item;
}

std::optional<double> number_of(Object* object) {
  if (object == nullptr) return std::nullopt;
  if (type_of(object) != &PyFloat_Type && type_of(object) != &PyLong_Type) return std::nullopt;
  const double number = PyFloat_AsDouble(object);
  if (number != -1 || PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return std::nullopt;
}

std::optional<bool> switch_of(Object* object) {
  if (object == nullptr || (!is_true(object) && !is_false(object))) return std::nullopt;
  return is_true(object);
}

bool is_absent_or(Object* dict, Object* key, Object* expected) {
  Object* const item = item_of(dict, key);
  return item == nullptr || item == expected;
}

bool is_empty_or_absent(Object* dict, Object* key) {
  Object* const item = item_of(dict, key);
  return item == nullptr || PyObject_Size(item) == 0;
}

// True if the optimizer's step is its class's own, possibly wrapped by a learning-rate scheduler.
bool is_own_step(Object* optimizer, Object* own) {
  const Reference of_class = Reference::of_new(PyObject_GetAttr(type_of(optimizer), optimizer_names().step));
  if (of_class && item_of(optimizers_in_python.own_steps, type_of(optimizer)) != of_class.get()) return false;
  Object* const replaced = item_of(own, optimizer_names().step);
  if (of_class && replaced == nullptr) return true;
  const Reference wrapped = of_class ? Reference::of_new(PyObject_GetAttr(replaced, optimizer_names().wrapped)) : Reference();
  const Reference is_schedulers =
      wrapped ? Reference::of_new(PyObject_GetAttr(replaced, optimizer_names().wrapped_by_scheduler)) : Reference();
  if (is_schedulers) return wrapped.get() == of_class.get() && is_true(is_schedulers.get());
  PyErr_Clear();
  return false;
}

// True if there is no hook, no profiler, and no attribute that another mode of the optimizer has left.
bool is_unobserved(Object* optimizer, Object* own) {
  const OptimizerNames& names = optimizer_names();
  for (std::ptrdiff_t i = 0; i < PyTuple_Size(optimizers_in_python.hooks); ++i) {
    if (PyDict_Size(PyTuple_GetItem(optimizers_in_python.hooks, i)) != 0) return false;
  }
  Object* const is_compiling = item_of(optimizers_in_python.compiler, names.is_compiling);
  return is_compiling != nullptr && is_false(is_compiling) && !at::hasCallbacks() && is_empty_or_absent(own, names.pre_hooks) &&
         is_empty_or_absent(own, names.post_hooks) && is_absent_or(own, names.grad_scale, none()) &&
         is_absent_or(own, names.found_inf, none()) && is_own_step(optimizer, own) && is_usual_thread();
}

// ---- groups and their state

bool take_settings(OptimizerClass of, Object* group, GatheredGroup& taken) {
  static Object* const not_on[] = {interned("capturable"), interned("differentiable")};
  static Object* const maximize = interned("maximize");
  static Object* const betas = interned("betas");
  for (Object* const name : not_on) {
    if (!is_absent_or(group, name, &_Py_FalseStruct)) return false;
  }
  for (Object* const name : setting_names(of).numbers) {
    const auto number = number_of(item_of(group, name));
    if (!number) return false;
    taken.numbers.push_back(*number);
  }
  for (Object* const name : setting_names(of).switches) {
    const auto is_on = switch_of(item_of(group, name));
    if (!is_on) return false;
    taken.switches.push_back(*is_on);
  }
  const auto is_maximized = switch_of(item_of(group, maximize));
  if (!is_maximized) return false;
  taken.maximize = *is_maximized;
  if (of != OptimizerClass::Adam) return true;
  Object* const pair = item_of(group, betas);
  if (pair == nullptr || !is_tuple(pair) || PyTuple_Size(pair) != 2) return false;
  const auto first = number_of(PyTuple_GetItem(pair, 0)), second = number_of(PyTuple_GetItem(pair, 1));
  if (!first || !second) return false;
  taken.beta1 = *first;
  taken.beta2 = *second;
  return true;
}

// The names of a group's state; nullptr for state that it does not have.
struct StateNames {
  std::array<Object*, 3> tensors{};
  bool counts_steps = true;
};
StateNames state_names(OptimizerClass of, const GatheredGroup& group) {
  static Object* const buffer = interned("momentum_buffer");
  static Object* const exp_avg = interned("exp_avg");
  static Object* const exp_avg_sq = interned("exp_avg_sq");
  static Object* const max_exp_avg_sq = interned("max_exp_avg_sq");
  static Object* const square_avg = interned("square_avg");
  static Object* const grad_avg = interned("grad_avg");
  static Object* const sum = interned("sum");
  switch (of) {
    case OptimizerClass::Sgd:
      return {{group.numbers[1] != 0 ? buffer : nullptr}, false};
    case OptimizerClass::Adam:
      return {{exp_avg, exp_avg_sq, group.switches[1] ? max_exp_avg_sq : nullptr}};
    case OptimizerClass::RmsProp:
      return {{square_avg, group.numbers[4] > 0 ? buffer : nullptr, group.switches[0] ? grad_avg : nullptr}};
    case OptimizerClass::Adagrad:
      return {{sum}};
  }
  return {};
}

// Reads the optimizer's state in insertion order, which is usually the order of the parameters.
class StateReader {
 public:
  explicit StateReader(Object* state) : state_(state) {}

  // Empty if the optimizer has no state for the parameter.
  Reference of(Object* parameter) {
    Object *key = nullptr, *value = nullptr;
    const std::ptrdiff_t here = place_;
    if (PyDict_Next(state_, &place_, &key, &value) != 0 && key == parameter) return Reference::of_borrowed(value);
    place_ = here;
    value = item_of(state_, parameter);
    return value == nullptr ? Reference() : Reference::of_borrowed(value);
  }

 private:
  Object* const state_;
  std::ptrdiff_t place_ = 0;
};

bool take_tensor(Object* state, Object* name, std::vector<at::Tensor>& tensors) {
  Object* const item = item_of(state, name);
  if (item == nullptr || !is_plain_tensor(item)) return false;
  tensors.push_back(tensor_of(item));
  return true;
}

// Tells whether a step updates a parameter.
using IsUpdated = c10::function_ref<bool(const at::Tensor& parameter)>;
bool has_gradient(const at::Tensor& parameter) { return parameter.grad().defined(); }

bool take_parameter(const StateNames& names, Object* parameter, IsUpdated is_updated, StateReader& reader, GatheredGroup& taken) {
  if (!is_plain_tensor(parameter)) return false;
  const at::Tensor& tensor = tensor_of(parameter);
  if (!is_updated(tensor)) return true;
  taken.objects.push_back(parameter);
  taken.parameters.push_back(tensor);
  const bool has_state = names.counts_steps || names.tensors[0] != nullptr;
  if (!has_state) return true;
  const Reference state = reader.of(parameter);
  if (!state || !is_dict(state.get())) return false;
  for (size_t i = 0; i < names.tensors.size(); ++i) {
    if (names.tensors[i] != nullptr && !take_tensor(state.get(), names.tensors[i], taken.state[i])) return false;
  }
  return !names.counts_steps || take_tensor(state.get(), optimizer_names().step, taken.steps);
}

std::optional<std::vector<GatheredGroup>> gather_groups(OptimizerClass of, Object* optimizer, Object* own, IsUpdated is_updated) {
  Object* const groups = parameter_groups_of(optimizer);
  Object* const state = item_of(own, optimizer_names().state);
  if (groups == nullptr || state == nullptr) return std::nullopt;
  static Object* const default_dict = PyObject_GetAttr(PyImport_ImportModule("collections"), interned("defaultdict"));
  if (!is_dict(state) && type_of(state) != default_dict) return std::nullopt;
  std::vector<GatheredGroup> all;
  StateReader reader(state);
  for (std::ptrdiff_t i = 0; i < PyList_Size(groups); ++i) {
    GatheredGroup& taken = all.emplace_back();
    taken.group = Reference::of_borrowed(PyList_GetItem(groups, i));
    Object* const list = parameters_of_group(taken.group.get());
    if (list == nullptr || !take_settings(of, taken.group.get(), taken)) return std::nullopt;
    taken.list = Reference::of_borrowed(list);
    const StateNames names = state_names(of, taken);
    for (std::ptrdiff_t k = 0; k < PyList_Size(list); ++k) {
      if (!take_parameter(names, PyList_GetItem(list, k), is_updated, reader, taken)) return std::nullopt;
      // An error, which the optimizer raises before it updates anything.
      if (of == OptimizerClass::Adam && !taken.parameters.empty() && taken.parameters.back().grad().is_sparse()) return std::nullopt;
    }
  }
  return all;
}

// ---- the updates

Updated update_group(OptimizerClass of, const GatheredGroup& group, const GradientFactor& factor) {
  const auto& n = group.numbers;
  const auto& on = group.switches;
  const auto& [a, b, c] = group.state;
  switch (of) {
    case OptimizerClass::Sgd:
      return update_sgd(factor, group.parameters, a, {}, n[0], n[1], n[2], n[3], on[0], group.maximize);
    case OptimizerClass::Adam:
      return update_adam(factor, group.parameters, a, b, c, group.steps, n[0], group.beta1, group.beta2, n[1], n[2], on[0], on[1],
                         group.maximize);
    case OptimizerClass::RmsProp:
      return update_rmsprop(factor, group.parameters, a, b, c, group.steps, n[0], n[1], n[2], n[3], n[4], on[0], group.maximize);
    case OptimizerClass::Adagrad:
      return update_adagrad(factor, group.parameters, a, group.steps, n[0], n[1], n[2], n[3], group.maximize);
  }
  return {};
}

struct StepOutcome {
  bool is_done = false;
  at::Tensor norm;
  GradientFactor factor;
  std::vector<Updated> updated;
  std::exception_ptr error;
};

StepOutcome run_step(OptimizerClass of, const std::vector<GatheredGroup>& groups, const Clip& clip) {
  StepOutcome outcome;
  const WithoutGil without_gil;
  const EngineTime time;
  const at::NoGradGuard no_grad;
  try {
    if (clip) {
      std::vector<at::Tensor> all;
      for (const GatheredGroup& group : groups) all.insert(all.end(), group.parameters.begin(), group.parameters.end());
      const std::vector<at::Tensor> clipped = clip_gradients(all, (*clip)[0], (*clip)[1]);
      if (clipped.empty()) return outcome;
      outcome.norm = clipped[0];
      outcome.factor = GradientFactor::of(clipped[1]);
    }
    outcome.is_done = true;
    for (const GatheredGroup& group : groups) outcome.updated.push_back(update_group(of, group, outcome.factor));
  } catch (...) {
    outcome.error = std::current_exception();
  }
  return outcome;
}

bool add_to_attribute(Object* object, Object* name, int64_t count) {
  const Reference before = Reference::of_new(PyObject_GetAttr(object, name));
  if (!before) return false;
  const Reference after = Reference::of_new(PyLong_FromLongLong(PyLong_AsLongLong(before.get()) + count));
  return PyObject_SetAttr(object, name, after.get()) == 0;
}

// Lets the optimizer's own code update what kernels cannot.
bool update_refused(Object* step, const GatheredGroup& group, const Updated& updated, const at::Tensor& factor) {
  static Object* const update = interned("_update_refused_for_c");
  const auto& [compiled, refused, reasons] = updated;
  if (refused.empty()) return true;
  Reference parameters = Reference::of_new(PyList_New(static_cast<std::ptrdiff_t>(refused.size())));
  for (size_t i = 0; i < refused.size(); ++i) {
    PyList_SetItem(parameters.get(), static_cast<std::ptrdiff_t>(i), new_reference(group.objects[static_cast<size_t>(refused[i])]));
  }
  const Reference why = Reference::of_new(PyUnicode_FromString(reasons.back().c_str())), by = Reference::of_new(object_of(factor));
  const Reference done =
      Reference::of_new(PyObject_CallMethodObjArgs(step, update, group.group.get(), parameters.get(), why.get(), by.get(), nullptr));
  return static_cast<bool>(done);
}

// Returns false if Python's error is set. `norm`: undefined if nothing was clipped.
bool set_norm(Object* step, const at::Tensor& norm) {
  static Object* const name = interned("grad_norm");
  if (!norm.defined()) return true;
  const Reference object = Reference::of_new(object_of(norm));
  return object && PyObject_SetAttr(step, name, object.get()) == 0;
}

bool count_compiled(Object* step, int64_t count) {
  static Object* const name = interned("compiled");
  return add_to_attribute(step, name, count);
}

// Returns false if Python's error is set.
bool tell_step(Object* step, const std::vector<GatheredGroup>& groups, const StepOutcome& outcome) {
  if (!set_norm(step, outcome.norm)) return false;
  int64_t compiled = 0;
  for (size_t i = 0; i < outcome.updated.size(); ++i) {
    if (!update_refused(step, groups[i], outcome.updated[i], outcome.factor.factor)) return false;
    compiled += std::get<0>(outcome.updated[i]);
  }
  return count_compiled(step, compiled);
}

// ---- the step of a CUDA graph

struct GatheredStep {
  OptimizerClass of;
  std::vector<GatheredGroup> groups;
  std::vector<at::Tensor> counted = {};  // step tensors that note() found to be counted
  uint64_t compiled = 0;
};

class OptimizerInPython final : public OptimizerStep {
 public:
  OptimizerInPython(Object* optimizer, Clip clip) : optimizer_(optimizer), clip_(clip) {}

  void step() override {
    last_ = gather_all(has_gradient);
    if (!last_) HC_UNSUPPORTED("the optimizer is observed, maximizes, or has settings or state that kernels do not know");
    const std::vector<at::Tensor> counts = counts_now();
    const StepOutcome outcome = run_step(last_->of, last_->groups, clip_);
    if (outcome.error) {
      set_counts(counts);  // a step is counted before its kernels are launched
      std::rethrow_exception(outcome.error);
    }
    if (!outcome.is_done) HC_UNSUPPORTED("gradients are clipped by PyTorch's own function");
    factor_ = {outcome.norm, outcome.factor.factor, outcome.factor.as_float};
    if (const std::string why = note(outcome.updated); !why.empty())
      HC_UNSUPPORTED("the optimizer's own code updates a parameter: {}", why);
  }

  bool gather(const detail::StepFactor& factor) override {
    factor_ = factor;
    last_ = gather_all(has_gradient);
    return last_.has_value();
  }

  bool run() override {
    const at::NoGradGuard no_grad;
    std::vector<Updated> updated;
    for (const GatheredGroup& group : last_->groups) {
      updated.push_back(update_group(last_->of, group, {factor_.factor, factor_.factor_as_float}));
    }
    return note(updated).empty();
  }

  detail::StepFactor factor() const override { return factor_; }
  void let_go(const detail::StepFactor& factor) override {
    if (factor_.factor.is_same(factor.factor)) factor_ = {};
  }
  bool makes_state(const std::vector<at::Tensor>& updated) override {
    std::unordered_set<const at::TensorImpl*> of_updated;
    for (const at::Tensor& parameter : updated) of_updated.insert(parameter.unsafeGetTensorImpl());
    return !gather_all([&](const at::Tensor& parameter) { return of_updated.contains(parameter.unsafeGetTensorImpl()); });
  }

  void take_back() override {
    if (!last_) return;
    for (const at::Tensor& steps : last_->counted) {
      if (steps.scalar_type() == at::kFloat) {
        *steps.mutable_data_ptr<float>() -= 1;
      } else {
        *steps.mutable_data_ptr<double>() -= 1;
      }
    }
    compiled_ -= last_->compiled;
    last_.reset();
  }

  uint64_t compiled() const override { return compiled_; }
  uint64_t original() const override { return 0; }  // step() throws

  bool tell(Object* step) override {
    const auto compiled = static_cast<int64_t>(last_->compiled);
    last_.reset();  // Python's garbage collector does not see its references
    const Reference own = Reference::of_new(PyObject_GenericGetDict(optimizer_, nullptr));
    if (!own || PyDict_SetItem(own.get(), optimizer_names().was_called, &_Py_TrueStruct) != 0) return false;
    // A copy: the next launch overwrites the CUDA graph's tensor.
    if (!set_norm(step, factor_.norm.defined() ? factor_.norm.clone() : factor_.norm)) return false;
    return count_compiled(step, compiled);
  }

 private:
  std::optional<GatheredStep> gather_all(IsUpdated is_updated) const {
    Object* const number = item_of(optimizers_in_python.classes, type_of(optimizer_));
    const Reference own = Reference::of_new(PyObject_GenericGetDict(optimizer_, nullptr));
    if (number == nullptr || !own || !is_unobserved(optimizer_, own.get())) {
      PyErr_Clear();
      return std::nullopt;
    }
    const auto of = static_cast<OptimizerClass>(PyLong_AsLongLong(number));
    auto groups = gather_groups(of, optimizer_, own.get(), is_updated);
    if (!groups) return std::nullopt;
    // With `maximize`, the factor would be a new tensor in each step.
    if (std::any_of(groups->begin(), groups->end(), [](const GatheredGroup& group) { return group.maximize; })) return std::nullopt;
    return GatheredStep{of, std::move(*groups)};
  }

  // Copies of the step counts.
  std::vector<at::Tensor> counts_now() const {
    std::vector<at::Tensor> counts;
    for (const GatheredGroup& group : last_->groups) {
      for (const at::Tensor& steps : group.steps) counts.push_back(steps.is_cpu() ? steps.clone() : at::Tensor());
    }
    return counts;
  }
  void set_counts(const std::vector<at::Tensor>& counts) const {
    auto count = counts.begin();
    for (const GatheredGroup& group : last_->groups) {
      for (const at::Tensor& steps : group.steps) {
        if (count->defined()) steps.copy_(*count);
        ++count;
      }
    }
  }

  // Why a parameter was not updated; empty if all were.
  std::string note(const std::vector<Updated>& updated) {
    std::string why;
    for (size_t i = 0; i < updated.size(); ++i) {
      const auto& [compiled, refused, reasons] = updated[i];
      if (!refused.empty()) why = reasons.back();
      last_->compiled += static_cast<uint64_t>(compiled);
      const std::vector<at::Tensor>& steps = last_->groups[i].steps;
      for (size_t k = 0; k < steps.size(); ++k) {
        if (std::find(refused.begin(), refused.end(), static_cast<int64_t>(k)) == refused.end()) last_->counted.push_back(steps[k]);
      }
    }
    compiled_ += last_->compiled;
    return why;
  }

  Object* const optimizer_;
  const Clip clip_;
  std::optional<GatheredStep> last_;
  detail::StepFactor factor_;
  uint64_t compiled_ = 0;
};

Object* false_object() { return new_reference(&_Py_FalseStruct); }

}  // namespace

Object* parameter_groups_of(Object* optimizer) {
  const Reference own = Reference::of_new(PyObject_GenericGetDict(optimizer, nullptr));
  if (!own) {
    PyErr_Clear();
    return nullptr;
  }
  Object* const groups = item_of(own.get(), optimizer_names().param_groups);
  return groups != nullptr && is_list(groups) ? groups : nullptr;
}

Object* parameters_of_group(Object* group) {
  if (!is_dict(group)) return nullptr;
  Object* const list = item_of(group, optimizer_names().params);
  return list != nullptr && is_list(list) ? list : nullptr;
}

Clip clip_of(Object* given) {
  if (is_none(given)) return std::nullopt;
  return Clip({PyFloat_AsDouble(PyTuple_GetItem(given, 0)), PyFloat_AsDouble(PyTuple_GetItem(given, 1))});
}

std::unique_ptr<OptimizerStep> optimizer_step(Object* optimizer, Clip clip) { return std::make_unique<OptimizerInPython>(optimizer, clip); }

Object* step_optimizer(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 4) return raise_text("step takes 4 arguments");
  Object* const step = arguments[0];
  Object* const optimizer = arguments[1];
  Object* const number = item_of(optimizers_in_python.classes, type_of(optimizer));
  if (number == nullptr) return false_object();
  const auto of = static_cast<OptimizerClass>(PyLong_AsLongLong(number));
  const Reference own = Reference::of_new(PyObject_GenericGetDict(optimizer, nullptr));
  if (!own) {
    PyErr_Clear();
    return false_object();
  }
  if (!is_unobserved(optimizer, own.get())) return false_object();
  const Clip clip = clip_of(arguments[2]);
  const auto groups = gather_groups(of, optimizer, own.get(), has_gradient);
  if (!groups) return false_object();
  if (PyDict_SetItem(own.get(), optimizer_names().was_called, &_Py_TrueStruct) != 0) return nullptr;
  if (is_true(arguments[3]) && (of == OptimizerClass::Adam || of == OptimizerClass::RmsProp)) {
    const Reference checked = Reference::of_new(PyObject_CallMethodObjArgs(optimizer, optimizer_names().check, nullptr));
    if (!checked) return nullptr;
  }
  const StepOutcome outcome = run_step(of, *groups, clip);
  if (outcome.error) return raise(outcome.error);
  if (!outcome.is_done) return false_object();
  return tell_step(step, *groups, outcome) ? new_reference(&_Py_TrueStruct) : nullptr;
}

Object* know_optimizers(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 4) return raise_text("know_optimizers takes 4 arguments");
  optimizers_in_python = {new_reference(arguments[0]), new_reference(arguments[1]), new_reference(arguments[2]),
                          new_reference(arguments[3])};
  return new_reference(none());
}

}  // namespace hindcast::python
