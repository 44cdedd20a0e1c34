#include "python/csrc/call_aot.h"

#include "python/csrc/call_times.h"
#include "python/csrc/callbacks.h"
#include "python/csrc/capsule.h"
#include "python/csrc/torch_python.h"
#include "python/csrc/unchanged.h"
#include "python/csrc/usual_thread.h"
#include "python/csrc/warnings.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

namespace hindcast::python {
namespace {

constexpr size_t kMostKnown = 16;

Reference number_object(int64_t number) { return Reference::of_new(PyLong_FromLongLong(number)); }

template <class... Arguments>
Reference call_method(Object* owner, Object* name, Arguments... arguments) {
  return Reference::of_new(PyObject_CallMethodObjArgs(owner, name, arguments..., nullptr));
}

Reference list_of(const std::vector<int64_t>& numbers) {
  Reference list = Reference::of_new(PyList_New(static_cast<std::ptrdiff_t>(numbers.size())));
  for (size_t i = 0; list && i < numbers.size(); ++i)
    PyList_SetItem(list.get(), static_cast<std::ptrdiff_t>(i), number_object(numbers[i]).release());
  return list;
}

Reference list_of(const std::vector<at::Tensor>& tensors) {
  Reference list = Reference::of_new(PyList_New(static_cast<std::ptrdiff_t>(tensors.size())));
  for (size_t i = 0; list && i < tensors.size(); ++i) PyList_SetItem(list.get(), static_cast<std::ptrdiff_t>(i), object_of(tensors[i]));
  return list;
}

// The outcome of a call, as reported to the Python code.
struct Told {
  detail::FunctionOutput output;
  std::vector<int64_t> released;
  bool raised = false, warned = false;
  std::exception_ptr error;
};

template <class BeforeRun>
Told run_without_gil(const KindOfCall& kind, std::vector<at::Tensor> tensors, bool is_timed, const BeforeRun& before_run) {
  RECORD_FUNCTION("hindcast::aot_call", c10::ArrayRef<const c10::IValue>{});
  Told told;
  const WithoutGil without_gil;
  const KeptWarnings warnings;
  const KeepsErrors keeps_errors(std::nullopt);
  const EngineTime time;
  try {
    told.output = call_kind(kind, std::move(tensors), is_timed, before_run);
    if (is_timed) told.output.next = 0;  // as aot_took says
  } catch (const PythonError&) {
    told.raised = true;
  } catch (...) {
    told.error = std::current_exception();
  }
  told.warned = warnings.any();
  told.released = take_released();
  return told;
}

// Cleans up in Python after a call that failed; its error is set. A signal handler may raise an exception when _fail_for_c starts, before
// it has done anything. That exception becomes the call's error, as it would without hindcast, and _fail_for_c is called once more.
void fail_in_python(Object* owner, Object* taken) {
  static Object* const fail = interned("_fail_for_c");
  FetchedError error;
  if (call_method(owner, fail, taken)) return error.set_again();
  FetchedError newer;
  if (!call_method(owner, fail, taken)) PyErr_Clear();
  newer.set_again();
}

// Finishes in Python a call that ran the function, or that failed. `taken`: a hindcast._facts.Call if the function has run. `interrupted`:
// the exception of a signal handler that ended the call before the function ran.
Reference finish_in_python(Told& told, Object* owner, Object* taken, std::optional<FetchedError>& interrupted) {
  static Object* const finish = interned("_finish_for_c");
  if (told.error) {
    interrupted ? interrupted->set_again() : static_cast<void>(raise(told.error));
    told.error = nullptr;
    fail_in_python(owner, taken);
    return {};
  }
  const Reference tensors = list_of(told.output.tensors), released = list_of(told.released);
  const Reference shape = number_object(told.raised ? 0 : number_of_shape(told.output)), next = number_object(told.output.next);
  if (!tensors || !released || !shape || !next) {
    fail_in_python(owner, taken);
    return {};
  }
  Object* const raised = told.raised ? &_Py_TrueStruct : &_Py_FalseStruct;
  Object* const warned = told.warned ? &_Py_TrueStruct : &_Py_FalseStruct;
  Reference result = call_method(owner, finish, taken, tensors.get(), shape.get(), raised, warned, released.get(), next.get());
  if (!result) fail_in_python(owner, taken);
  return result;
}

bool tell_after_hit(const Told& told, Object* owner) {
  if (told.released.empty() && !told.warned && told.output.next == 0) return true;
  static Object* const tell = interned("_tell_for_c");
  const Reference released = list_of(told.released), next = number_object(told.output.next);
  if (!released) return false;
  Object* const warned = told.warned ? &_Py_TrueStruct : &_Py_FalseStruct;
  return static_cast<bool>(call_method(owner, tell, released.get(), warned, next.get()));
}

}  // namespace

std::shared_ptr<CompiledFunction::Known> CompiledFunction::find_known(const CallPattern& pattern, const Reference& default_device) {
  for (size_t i = 0; i < known_.size(); ++i) {
    if (!known_[i]->pattern.equals(pattern) || !are_equal_devices(known_[i]->default_device, default_device)) continue;
    const std::shared_ptr<Known> known = known_[i];
    const bool holds = hindcast_unchanged(known->words) != 0;  // may run Python code, which may call forget()
    if (!holds || known->is_gone) continue;
    const auto at = std::find(known_.begin(), known_.end(), known);
    if (at != known_.end()) std::rotate(known_.begin(), at, at + 1);
    return known;
  }
  return nullptr;
}

CompiledFunction::Found CompiledFunction::find(Object* args, Object* kwargs, bool takes_gradients) {
  if (known_.empty() || PyObject_Size(dead_.get()) != 0 || !is_usual_thread() ||
      at::SavedTensorDefaultHooks::get_hooks(/*ignore_is_tracing=*/true).has_value()) {
    return {};
  }
  CallPattern pattern;
  std::vector<at::Tensor> tensors;
  if (!pattern.take(args, kwargs, tensors)) return {};
  const auto requires_grad = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  if (!takes_gradients && std::any_of(tensors.begin(), tensors.end(), requires_grad)) return {};
  std::shared_ptr<Known> known = find_known(pattern, default_device());
  if (known == nullptr) return {};
  return {std::move(known), std::move(tensors)};
}

CompiledFunction::Outcome CompiledFunction::call(Object* owner, Object* args, Object* kwargs, bool takes_gradients, bool is_timed) {
  Found found = find(args, kwargs, takes_gradients);
  return found.known == nullptr ? Outcome() : run(std::move(found), owner, args, kwargs, is_timed);
}

CompiledFunction::Outcome CompiledFunction::run(Found found, Object* owner, Object* args, Object* kwargs, bool is_timed) {
  ++hits_;
  const std::shared_ptr<Known>& known = found.known;
  Reference taken;
  std::optional<FetchedError> interrupted;
  const auto before_run = [&] {
    const WithGil gil;
    if (taken) return;  // the function runs a second time
    static Object* const begin = interned("_begin_for_c");
    const Reference facts = number_object(known->kind.kept->number());
    taken = call_method(owner, begin, args, kwargs == nullptr ? none() : kwargs, facts.get(), known->seen.get());
    if (taken) return;
    interrupted.emplace();
    throw std::runtime_error("hindcast: a call ended before the function ran");
  };
  Told told = run_without_gil(known->kind, std::move(found.tensors), is_timed, before_run);
  Outcome outcome;
  outcome.known = known;
  if (taken || told.error || told.raised) {
    outcome.result = finish_in_python(told, owner, taken ? taken.get() : none(), interrupted);
    outcome.what = outcome.result ? Outcome::What::Finished : Outcome::What::Raised;
    return outcome;
  }
  outcome.what = tell_after_hit(told, owner) ? Outcome::What::Hit : Outcome::What::Raised;
  outcome.output = std::move(told.output);
  return outcome;
}

const ResultTemplate* CompiledFunction::template_of(Known& known, const detail::FunctionOutput& output, Object* owner) {
  const int64_t shape = number_of_shape(output);
  if (shape == 0) return nullptr;
  if (known.shape != shape) {
    static Object* const describe = interned("_describe_for_c");
    const Reference described = call_method(owner, describe, number_object(shape).get());
    if (!described) return nullptr;
    known.result.reset();
    if (!is_false(described.get())) known.result = ResultTemplate::of(described.get());
    known.shape = shape;
  }
  return known.result ? &*known.result : nullptr;
}

Object* CompiledFunction::result_of(Outcome& outcome, Object* owner, Object* args, Object* kwargs) {
  const std::vector<at::Tensor>& tensors = outcome.output.tensors;
  const int64_t shape = number_of_shape(outcome.output);
  if (shape == 0) return object_of(tensors.at(0));
  if (const ResultTemplate* const result = template_of(*outcome.known, outcome.output, owner)) return result->make(tensors);
  if (PyErr_Occurred() != nullptr) return nullptr;
  static Object* const put_together = interned("_put_together_for_c");
  const Reference list = list_of(tensors);
  if (!list) return nullptr;
  return call_method(owner, put_together, number_object(shape).get(), list.get(), args, kwargs == nullptr ? none() : kwargs).release();
}

void CompiledFunction::remember(Object* args, Object* kwargs, Object* seen, int64_t facts, const std::vector<int64_t>& fixed,
                                Object* objects) {
  static Object* const address = interned("address");
  auto known = std::make_shared<Known>();
  std::vector<at::Tensor> tensors;
  if (!known->pattern.take(args, kwargs, tensors) || !known->pattern.keep(objects)) return;
  const Reference words = Reference::of_new(PyObject_GetAttr(seen, address));
  if (!words) return PyErr_Clear();
  known->words = reinterpret_cast<const int64_t*>(PyLong_AsLongLong(words.get()));
  known->seen = Reference::of_borrowed(seen);
  known->default_device = default_device();
  known->kind = kind_of_call(number_, facts, fixed);
  std::vector<std::shared_ptr<Known>> gone;  // destroyed last, when the list is consistent: this may run Python code
  for (auto at = known_.begin(); at != known_.end();) {
    const bool is_over = (*at)->words[0] == 0 || ((*at)->seen.get() == seen && (*at)->pattern.equals(known->pattern) &&
                                                  are_equal_devices((*at)->default_device, known->default_device));
    if (is_over) gone.push_back(std::move(*at));
    at = is_over ? known_.erase(at) : at + 1;
  }
  known_.insert(known_.begin(), std::move(known));
  if (known_.size() > kMostKnown) {
    gone.push_back(std::move(known_.back()));
    known_.pop_back();
  }
}

void CompiledFunction::forget(int64_t facts) {
  std::vector<std::shared_ptr<Known>> gone;
  for (auto at = known_.begin(); at != known_.end();) {
    const bool is_meant = (*at)->kind.kept->number() == facts;
    if (is_meant) {
      (*at)->is_gone = true;
      gone.push_back(std::move(*at));
    }
    at = is_meant ? known_.erase(at) : at + 1;
  }
}

namespace {

// call(owner, args, kwargs, not_known, is_timed)
Object* call_compiled(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 5) return raise_text("call takes 5 arguments");
  auto& function = in_capsule<CompiledFunction>(self);
  auto outcome = function.call(arguments[0], arguments[1], arguments[2], /*takes_gradients=*/true, is_true(arguments[4]));
  using What = CompiledFunction::Outcome::What;
  switch (outcome.what) {
    case What::NotKnown:
      return new_reference(arguments[3]);
    case What::Raised:
      return nullptr;
    case What::Finished:
      return outcome.result.release();
    case What::Hit:
      if (outcome.output.is_functions) {
        static Object* const run = interned("run_in_its_turn");
        return call_method(arguments[0], run, arguments[1], arguments[2]).release();
      }
      return function.result_of(outcome, arguments[0], arguments[1], arguments[2]);
  }
  return nullptr;
}

// remember(args, kwargs, seen, facts, fixed, objects)
Object* remember_call(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 6) return raise_text("remember takes 6 arguments");
  std::vector<int64_t> fixed;
  for (std::ptrdiff_t i = 0; i < PyList_Size(arguments[4]); ++i) fixed.push_back(PyLong_AsLongLong(PyList_GetItem(arguments[4], i)));
  in_capsule<CompiledFunction>(self).remember(arguments[0], arguments[1], arguments[2], PyLong_AsLongLong(arguments[3]), fixed,
                                              arguments[5]);
  return new_reference(none());
}

Object* forget_calls(Object* self, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 1) return raise_text("forget takes 1 argument");
  in_capsule<CompiledFunction>(self).forget(PyLong_AsLongLong(arguments[0]));
  return new_reference(none());
}

Object* hits_of_calls(Object* self, Object* const*, std::ptrdiff_t) {
  return PyLong_FromLongLong(in_capsule<CompiledFunction>(self).hits());
}

}  // namespace

Object* make_compiled_function(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 2) return raise_text("function takes 2 arguments");
  static MethodDefinition methods[] = {{"call", &guarded<&call_compiled>, kFastCall, nullptr},
                                       {"remember", &guarded<&remember_call>, kFastCall, nullptr},
                                       {"forget", &guarded<&forget_calls>, kFastCall, nullptr},
                                       {"hits", &guarded<&hits_of_calls>, kFastCall, nullptr}};
  const Reference capsule = capsule_of(new CompiledFunction(PyLong_AsLongLong(arguments[0]), arguments[1]));
  if (!capsule) return nullptr;
  Reference functions = Reference::of_new(PyTuple_New(std::size(methods)));
  for (size_t i = 0; i < std::size(methods); ++i) {
    PyTuple_SetItem(functions.get(), static_cast<std::ptrdiff_t>(i), PyCFunction_NewEx(&methods[i], capsule.get(), nullptr));
  }
  return functions.release();
}

CompiledFunction* compiled_function_of(Object* call) { return &in_capsule<CompiledFunction>(PyCFunction_GetSelf(call)); }

Object* know_values(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 1) return raise_text("know_values takes 1 argument");
  CallPattern::know_values(new_reference(arguments[0]));
  return new_reference(none());
}

}  // namespace hindcast::python
