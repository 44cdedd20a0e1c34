#include "python/csrc/call_train.h"

#include "base/check.h"
#include "engine/aot/separate_gradients.h"
#include "engine/train/recorded_step.h"
#include "engine/train/watched_leaves.h"
#include "python/csrc/call_aot.h"
#include "python/csrc/call_optim.h"
#include "python/csrc/capsule.h"
#include "python/csrc/torch_python.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace hindcast::python {
namespace {

using CallOutcomeInC = CompiledFunction::Outcome;

struct TrainPlan {
  struct Parameter {
    Object* object;
    bool requires_grad;
  };
  std::vector<Parameter> all;   // in the order of the optimizer's groups
  std::vector<size_t> trained;  // indices of those that get gradients
};

struct TrainArguments {
  Object *step, *plan, *optimizer, *function, *call, *update, *keeps_gradients, *args, *kwargs, *not_known, *recorder;
};

// The optimizer's parameters; nullopt if they are no longer those of the plan.
std::optional<std::vector<at::Tensor>> parameters_of(const TrainPlan& plan, Object* optimizer) {
  Object* const groups = parameter_groups_of(optimizer);
  if (groups == nullptr) return std::nullopt;
  std::vector<at::Tensor> parameters;
  parameters.reserve(plan.all.size());
  for (std::ptrdiff_t i = 0; i < PyList_Size(groups); ++i) {
    Object* const list = parameters_of_group(PyList_GetItem(groups, i));
    if (list == nullptr) return std::nullopt;
    for (std::ptrdiff_t k = 0; k < PyList_Size(list); ++k) {
      Object* const object = PyList_GetItem(list, k);
      if (parameters.size() == plan.all.size() || plan.all[parameters.size()].object != object || !is_plain_tensor(object))
        return std::nullopt;
      const at::Tensor& parameter = tensor_of(object);
      if (parameter.requires_grad() != plan.all[parameters.size()].requires_grad) return std::nullopt;
      parameters.push_back(parameter);
    }
  }
  if (parameters.size() != plan.all.size()) return std::nullopt;
  return parameters;
}

class GradientsOfStep {
 public:
  explicit GradientsOfStep(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) before_.push_back(parameter.grad());
  }
  void drop() const {
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }
  void restore() const {
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = before_[i];
  }
  const at::Tensor& parameter(size_t i) const { return parameters_[i]; }

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> before_;
};

std::vector<at::Tensor> trained_of(const TrainPlan& plan, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> trained;
  trained.reserve(plan.trained.size());
  for (const size_t i : plan.trained) trained.push_back(parameters[i]);
  return trained;
}

// The template of a program that returns the function's result, then a gradient or None for each trained parameter. nullptr if it is
// something else, or has no gradient.
const ResultTemplate* result_with_gradients(const ResultTemplate* whole, size_t trained) {
  if (whole == nullptr || !whole->is_tuple() || whole->parts().size() != trained + 1) return nullptr;
  const auto first = whole->parts().begin() + 1;
  const bool has_one = std::any_of(first, whole->parts().end(), [](const ResultTemplate& part) { return part.is_tensor(); });
  return has_one ? whole : nullptr;
}

Reference call_object(Object* object) { return Reference::of_new(PyObject_CallFunctionObjArgs(object, nullptr)); }

// Lets the Python code process what the function has returned, and do the update.
Object* finish_step_in_python(const TrainArguments& given, const GradientsOfStep& gradients, const Reference& returned) {
  static Object* const take = interned("_take_for_c");
  static Object* const finish = interned("_step");
  Reference result =
      returned ? Reference::of_new(PyObject_CallMethodObjArgs(given.step, take, given.function, returned.get(), nullptr)) : Reference();
  if (!result) {
    gradients.restore();
    return nullptr;
  }
  const Reference done = Reference::of_new(PyObject_CallMethodObjArgs(given.step, finish, nullptr));
  return done ? result.release() : nullptr;
}

Object* finish_step(const TrainArguments& given, const TrainPlan& plan, const GradientsOfStep& gradients, CallOutcomeInC& outcome) {
  CompiledFunction& function = *compiled_function_of(given.call);
  const bool keeps = is_true(given.keeps_gradients);
  const ResultTemplate* const whole =
      result_with_gradients(CompiledFunction::template_of(*outcome.known, outcome.output, given.function), plan.trained.size());
  if (PyErr_Occurred() != nullptr) {
    gradients.restore();
    return nullptr;
  }
  if (whole == nullptr) {
    const Reference returned = Reference::of_new(function.result_of(outcome, given.function, given.args, given.kwargs));
    return finish_step_in_python(given, gradients, returned);
  }
  std::vector<at::Tensor>& tensors = outcome.output.tensors;
  size_t next = 0;
  Reference result = Reference::of_new(whole->parts()[0].make_next(tensors, next));
  if (!result) {
    gradients.restore();
    return nullptr;
  }
  engine::separate_gradients(std::span(tensors).subspan(next), engine::SameTensor::Copied);
  for (size_t i = 0; i < plan.trained.size(); ++i) {
    if (whole->parts()[i + 1].is_tensor()) gradients.parameter(plan.trained[i]).mutable_grad() = tensors.at(next++);
  }
  if (!call_object(given.update)) return nullptr;
  if (!keeps) gradients.drop();
  return result.release();
}

// ---- steps as CUDA graphs

struct TrainRecorder {
  TrainRecorder(Object* optimizer, Clip clip, size_t most_bytes) : update(optimizer_step(optimizer, clip)), steps(*update, most_bytes) {}
  std::unique_ptr<OptimizerStep> update;
  engine::RecordedSteps steps;
};

size_t count_tensors(const ResultTemplate& result) {
  if (result.is_tensor()) return 1;
  size_t count = 0;
  for (const ResultTemplate& part : result.parts()) count += count_tensors(part);
  return count;
}

// Runs loss, gradients and updates of a step with a known program and result. Returns only the function's result.
detail::FunctionOutput run_whole_step(CompiledFunction::Known& known, Object* owner, const detail::FunctionCall& call,
                                      const std::vector<at::Tensor>& trained, OptimizerStep& update) {
  detail::FunctionOutput output = core_of(known.kind).call(call);
  const ResultTemplate* const whole = result_with_gradients(CompiledFunction::template_of(known, output, owner), trained.size());
  if (whole == nullptr) {
    PyErr_Clear();
    HC_UNSUPPORTED("its result is no tuple of what a template can put together");
  }
  const std::vector<ResultTemplate>& parts = whole->parts();
  const size_t results = count_tensors(parts[0]);
  size_t next = results;
  for (size_t i = 0; i < trained.size(); ++i) {
    if (parts[i + 1].is_tensor()) trained[i].mutable_grad() = output.tensors.at(next++);
  }
  output.tensors.resize(results);
  update.step();
  return output;
}

// Runs the step as a CUDA graph. Returns nullptr without an error if nothing was done.
Object* train_as_recorded(const TrainArguments& given, const TrainPlan& plan, const GradientsOfStep& gradients,
                          const CompiledFunction::Found& found) {
  CompiledFunction::Known& known = *found.known;
  if (!known.result || result_with_gradients(&*known.result, plan.trained.size()) == nullptr) return nullptr;
  auto& recorder = in_capsule<TrainRecorder>(given.recorder);
  std::vector<at::Tensor> trained;
  trained.reserve(plan.trained.size());
  for (const size_t i : plan.trained) trained.push_back(gradients.parameter(i));
  const auto updated = [&](const detail::AotHit&) {
    std::vector<at::Tensor> with_gradient;
    for (size_t i = 0; i < trained.size(); ++i) {
      if (known.result->parts()[i + 1].is_tensor()) with_gradient.push_back(trained[i]);
    }
    return with_gradient;
  };
  const auto function = [](const std::vector<at::Tensor>&) -> detail::FunctionOutput { HC_UNSUPPORTED("the function would run"); };
  const detail::FunctionCall call = function_call_of(known.kind, found.tensors, function);
  std::optional<detail::FunctionOutput> output = recorder.steps.run(
      {call, core_of(known.kind), trained,
       [&](const detail::FunctionCall& on) { return run_whole_step(known, given.function, on, trained, *recorder.update); }, updated});
  if (!output) return nullptr;
  compiled_function_of(given.call)->note_hit();
  if (!recorder.update->tell(given.update)) return nullptr;
  // Another program may have made the last result.
  const ResultTemplate* const whole = CompiledFunction::template_of(known, *output, given.function);
  if (whole == nullptr) return PyErr_Occurred() != nullptr ? nullptr : raise_text("the result of a recorded step is no tuple any more");
  size_t next = 0;
  return whole->parts()[0].make_next(output->tensors, next);
}

Object* train_by(const TrainArguments& given) {
  const auto& plan = in_capsule<TrainPlan>(given.plan);
  if (!c10::GradMode::is_enabled()) return new_reference(given.not_known);
  auto parameters = parameters_of(plan, given.optimizer);
  if (!parameters || engine::why_watched(trained_of(plan, *parameters)) != nullptr) return new_reference(given.not_known);
  const GradientsOfStep gradients(std::move(*parameters));
  gradients.drop();
  CompiledFunction& function = *compiled_function_of(given.call);
  CompiledFunction::Found found = function.find(given.args, given.kwargs, /*takes_gradients=*/false);
  if (found.known == nullptr) {
    gradients.restore();
    return new_reference(given.not_known);
  }
  if (!is_none(given.recorder)) {
    Object* result = nullptr;
    try {
      result = train_as_recorded(given, plan, gradients, found);
    } catch (...) {
      gradients.restore();
      throw;
    }
    if (result != nullptr || PyErr_Occurred() != nullptr) return result;
  }
  CallOutcomeInC outcome = function.run(std::move(found), given.function, given.args, given.kwargs, /*is_timed=*/false);
  switch (outcome.what) {
    case CallOutcomeInC::What::NotKnown:
      gradients.restore();
      return new_reference(given.not_known);
    case CallOutcomeInC::What::Raised:
      gradients.restore();
      return nullptr;
    case CallOutcomeInC::What::Finished:
      return finish_step_in_python(given, gradients, outcome.result);
    case CallOutcomeInC::What::Hit:
      return finish_step(given, plan, gradients, outcome);
  }
  return nullptr;
}

}  // namespace

Object* make_train_plan(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 2) return raise_text("train_plan takes 2 arguments");
  TrainPlan plan;
  for (std::ptrdiff_t i = 0; i < PyList_Size(arguments[0]); ++i) {
    Object* const parameter = PyList_GetItem(arguments[0], i);
    if (!is_plain_tensor(parameter)) return new_reference(none());
    plan.all.push_back({parameter, tensor_of(parameter).requires_grad()});
  }
  for (std::ptrdiff_t i = 0; i < PyList_Size(arguments[1]); ++i) {
    const auto is_it = [&](const TrainPlan::Parameter& one) { return one.object == PyList_GetItem(arguments[1], i); };
    const auto found = std::find_if(plan.all.begin(), plan.all.end(), is_it);
    if (found == plan.all.end()) return new_reference(none());
    plan.trained.push_back(static_cast<size_t>(found - plan.all.begin()));
  }
  return capsule_of(new TrainPlan(std::move(plan))).release();
}

Object* separate_gradients(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 1) return raise_text("separate_gradients takes 1 argument");
  Object* const list = arguments[0];
  std::vector<at::Tensor> gradients, separate;
  for (std::ptrdiff_t i = 0; i < PyList_Size(list); ++i) {
    Object* const gradient = PyList_GetItem(list, i);
    gradients.push_back(is_plain_tensor(gradient) ? tensor_of(gradient) : at::Tensor());
  }
  separate = gradients;
  if (engine::separate_gradients(separate, engine::SameTensor::Copied)) {
    for (size_t i = 0; i < separate.size(); ++i) {
      if (!separate[i].is_same(gradients[i])) PyList_SetItem(list, static_cast<std::ptrdiff_t>(i), object_of(separate[i]));
    }
  }
  return new_reference(none());
}

Object* make_train_recorder(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 3) return raise_text("train_recorder takes 3 arguments");
  return capsule_of(new TrainRecorder(arguments[0], clip_of(arguments[1]), static_cast<size_t>(PyLong_AsLongLong(arguments[2])))).release();
}

Object* train_recorder_stats(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 1) return raise_text("train_recorder_stats takes 1 argument");
  const auto& steps = in_capsule<TrainRecorder>(arguments[0]).steps;
  Reference stats = Reference::of_new(PyTuple_New(3));
  PyTuple_SetItem(stats.get(), 0, PyLong_FromLongLong(static_cast<int64_t>(steps.launches())));
  PyTuple_SetItem(stats.get(), 1, PyLong_FromLongLong(static_cast<int64_t>(steps.bytes())));
  PyTuple_SetItem(stats.get(), 2, PyUnicode_FromString(steps.why_not().c_str()));
  return stats.release();
}

Object* train(Object*, Object* const* a, std::ptrdiff_t count) {
  if (count != 11) return raise_text("train takes 11 arguments");
  return train_by({a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]});
}

}  // namespace hindcast::python
