#include "python/csrc/call_backward.h"

#include "capture/backward/facts.h"
#include "capture/recorder/recorder.h"
#include "engine/cache/payoff.h"
#include "engine/counters/fallback.h"
#include "hindcast/detail/back_off_policy.h"
#include "python/csrc/call_times.h"
#include "python/csrc/run_backward.h"
#include "python/csrc/torch_python.h"
#include "python/csrc/usual_thread.h"
#include "python/csrc/warnings.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <optional>
#include <vector>

namespace hindcast::python {
namespace {

struct InPython {
  Object* pytorchs = nullptr;
  Object* by_python = nullptr;
  Object* warn = nullptr;
  Object* warn_beside_an_error = nullptr;
};
InPython in_python;  // references that are never released

// The innermost guard of a thread or, for threads without one, of the process.
struct InnermostGuard {
  int64_t options = kNone;
  bool is_disabled = false;

  static constexpr int64_t kNone = -1;
};
InnermostGuard of_process;  // guarded by the GIL

struct ThreadCalls {
  InnermostGuard own;
  int64_t disabled = 0;                 // calls under options that switch hindcast off, not counted yet
  int64_t unseen = 0, unseen_with = 0;  // next calls under these options that go to PyTorch; -1: the next is timed
  bool are_not_faster = false;
  int64_t uncounted = 0;  // those of them that have come, not counted yet
  uint64_t resets = 0;    // Payoff::resets() when `unseen` was set

  ~ThreadCalls() {
    count_left();
    count(engine::FallbackReason::Disabled, disabled);
  }

  const InnermostGuard& guard() const { return own.options != InnermostGuard::kNone ? own : of_process; }
  void leave(int64_t calls, bool not_faster) {
    if (calls == 0) return;
    unseen = calls;
    unseen_with = guard().options;
    are_not_faster = not_faster;
    resets = engine::Payoff::of_process().resets();
  }
  void forget_time_before_reset() {
    if (resets != engine::Payoff::of_process().resets()) unseen = uncounted = 0;
  }
  void count_left() {
    forget_time_before_reset();
    count(are_not_faster ? engine::FallbackReason::NotFaster : engine::FallbackReason::DoesNotPay, uncounted);
  }

 private:
  static void count(engine::FallbackReason reason, int64_t& calls) {
    for (int64_t i = std::exchange(calls, 0); i > 0; --i) engine::record_fallback(reason);
  }
};
thread_local ThreadCalls of_thread;

constexpr size_t kArguments = 7;
using Arguments = std::array<Object*, kArguments>;

// Returns nullopt if these are not valid arguments of the method.
std::optional<Arguments> arguments_of(Object* const* given, std::ptrdiff_t count, Object* names) {
  static Object* const known[] = {interned("tensors"), interned("grad_tensors"),      interned("keep_graph"),     interned("create_graph"),
                                  interned("inputs"),  interned("allow_unreachable"), interned("accumulate_grad")};
  static Object* const empty = PyTuple_New(0);
  Arguments arguments{nullptr, nullptr, nullptr, nullptr, empty, &_Py_FalseStruct, &_Py_FalseStruct};
  if (count > static_cast<std::ptrdiff_t>(kArguments)) return std::nullopt;
  for (std::ptrdiff_t i = 0; i < count; ++i) arguments[static_cast<size_t>(i)] = given[i];
  const std::ptrdiff_t named = names == nullptr ? 0 : PyTuple_Size(names);
  for (std::ptrdiff_t i = 0; i < named; ++i) {
    Object* const name = PyTuple_GetItem(names, i);
    size_t place = 0;
    while (place < kArguments && known[place] != name && PyObject_RichCompareBool(known[place], name, kEqual) != 1) ++place;
    if (place == kArguments || static_cast<std::ptrdiff_t>(place) < count) return std::nullopt;
    arguments[place] = given[count + i];
  }
  for (Object* const argument : arguments) {
    if (argument == nullptr) return std::nullopt;
  }
  return arguments;
}

Object* call_pytorchs(Object* const* arguments, std::ptrdiff_t count, Object* names) {
  if (PyObject_Vectorcall != nullptr) return PyObject_Vectorcall(in_python.pytorchs, arguments, static_cast<size_t>(count), names);
  const Reference given = Reference::of_new(PyTuple_New(count)), named = Reference::of_new(PyDict_New());
  if (!given || !named) return nullptr;
  for (std::ptrdiff_t i = 0; i < count; ++i) PyTuple_SetItem(given.get(), i, new_reference(arguments[i]));
  for (std::ptrdiff_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
    PyDict_SetItem(named.get(), PyTuple_GetItem(names, i), arguments[count + i]);
  }
  return PyObject_Call(in_python.pytorchs, given.get(), named.get());
}

Object* call_python(const Arguments& a, uint64_t started) {
  const Reference when = Reference::of_new(PyLong_FromLongLong(static_cast<long long>(started)));
  return PyObject_CallFunctionObjArgs(in_python.by_python, a[0], a[1], a[2], a[3], a[4], a[5], a[6], when.get(), nullptr);
}

// Returns false if an operator would not accept them.
bool take_tensors(Object* tuple, bool may_be_none, std::vector<at::Tensor>& tensors) {
  if (!is_tuple(tuple)) return false;
  const std::ptrdiff_t count = PyTuple_Size(tuple);
  tensors.reserve(static_cast<size_t>(count));
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    Object* const item = PyTuple_GetItem(tuple, i);
    if (may_be_none && is_none(item)) {
      tensors.emplace_back();
      continue;
    }
    if (!is_plain_tensor(item)) return false;
    const at::Tensor& tensor = tensor_of(item);
    if (!capture::is_plain(tensor)) return false;  // for example, a named tensor
    tensors.push_back(tensor);
  }
  return true;
}

struct Tensors {
  std::vector<at::Tensor> tensors, gradients, inputs;
};

// Finishes a call that has failed; its error is set.
Object* failed(bool warned) {
  of_thread.leave(take_pause(), false);
  if (!warned) return nullptr;
  FetchedError error;
  const Reference done = Reference::of_new(PyObject_CallFunctionObjArgs(in_python.warn_beside_an_error, nullptr));
  if (done) error.set_again();  // otherwise a signal handler has raised another one
  return nullptr;
}

Object* result_of(const Found& found, bool is_accumulated) {
  if (is_accumulated) return new_reference(none());
  Reference result = Reference::of_new(PyTuple_New(static_cast<std::ptrdiff_t>(found.gradients.size())));
  if (!result) return nullptr;
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    Object* const gradient = object_of(found.gradients[i]);
    if (gradient == nullptr) return nullptr;
    PyTuple_SetItem(result.get(), static_cast<std::ptrdiff_t>(i), gradient);
  }
  return result.release();
}

Object* run_here(const Tensors& given, const std::array<bool, 4>& flags, uint64_t started) {
  RECORD_FUNCTION("hindcast::run_backward", c10::ArrayRef<const c10::IValue>{});
  Found found;
  bool warned = false, has_failed = false;
  std::exception_ptr error;
  {
    const WithoutGil without_gil;
    const KeptWarnings warnings;
    const EngineTime time;
    try {
      found = run({given.tensors, given.gradients, given.inputs, flags[0], flags[1], flags[2], flags[3], static_cast<int64_t>(started)});
    } catch (...) {
      error = std::current_exception();
      has_failed = true;
    }
    warned = warnings.any();
  }
  if (has_failed) {
    raise(error);
    error = nullptr;
    return failed(warned);
  }
  of_thread.leave(found.unseen, found.are_not_faster);
  if (warned) {
    const Reference done = Reference::of_new(PyObject_CallFunctionObjArgs(in_python.warn, nullptr));
    if (!done) return nullptr;
  }
  return result_of(found, flags[3]);
}

// Returns false if the tuple holds something else than plain tensors, whose edges are not taken.
bool take_edges(Object* tuple, std::vector<torch::autograd::Edge>& edges) {
  if (!is_tuple(tuple)) return false;
  for (std::ptrdiff_t i = 0; i < PyTuple_Size(tuple); ++i) {
    Object* const item = PyTuple_GetItem(tuple, i);
    if (!is_plain_tensor(item)) return false;
    const at::Tensor& tensor = tensor_of(item);
    if (tensor.requires_grad()) edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  return true;
}

// PyTorch reads the edges of the tensors after this, so it gets those that the recorder has replaced.
void tell_of_backward(capture::Recorder& recorder, Object* const* given, std::ptrdiff_t count, Object* names) {
  const auto arguments = arguments_of(given, count, names);
  if (!arguments) return;  // PyTorch raises the error
  capture::StartedBackward backward{.accumulates = is_true((*arguments)[6])};
  const bool knows_roots = take_edges((*arguments)[0], backward.roots);
  backward.knows_all = take_edges((*arguments)[4], backward.outputs) && knows_roots;
  recorder.begins_backward(backward);
}

// Returns nullopt if the Python code must handle the call.
std::optional<std::array<bool, 4>> flags_of(const Arguments& arguments) {
  std::array<bool, 4> flags{};
  const std::array<size_t, 4> places{2, 3, 5, 6};
  for (size_t i = 0; i < flags.size(); ++i) {
    const int is_true = PyObject_IsTrue(arguments[places[i]]);
    if (is_true < 0) {
      PyErr_Clear();
      return std::nullopt;
    }
    flags[i] = is_true != 0;
  }
  return flags;
}

}  // namespace

Object* run_backward_of_python(Object*, Object* const* given, std::ptrdiff_t count, Object* names) {
  if (capture::Recorder* const recorder = capture::Recorder::current()) [[unlikely]]
    tell_of_backward(*recorder, given, count, names);
  const InnermostGuard& guard = of_thread.guard();
  if (guard.options == InnermostGuard::kNone) return call_pytorchs(given, count, names);
  if (guard.is_disabled) {
    ++of_thread.disabled;
    return call_pytorchs(given, count, names);
  }
  uint64_t started = 0;
  if (of_thread.unseen != 0) of_thread.forget_time_before_reset();
  if (of_thread.unseen != 0 && of_thread.unseen_with == guard.options) {
    if (of_thread.unseen > 0) {
      --of_thread.unseen;
      ++of_thread.uncounted;
      return call_pytorchs(given, count, names);
    }
    of_thread.unseen = 0;
    started = detail::processor_ns();
  }
  const auto arguments = arguments_of(given, count, names);
  if (!arguments) return call_pytorchs(given, count, names);
  if (of_thread.uncounted != 0) of_thread.count_left();
  if (is_usual_thread()) {
    Tensors tensors;
    const auto flags = flags_of(*arguments);
    if (flags && take_tensors((*arguments)[0], false, tensors.tensors) && take_tensors((*arguments)[1], true, tensors.gradients) &&
        take_tensors((*arguments)[4], false, tensors.inputs)) {
      return run_here(tensors, *flags, started);
    }
  }
  return call_python(*arguments, started);
}

Object* set_backward(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 4) return raise_text("set_backward takes 4 arguments");
  in_python = {new_reference(arguments[0]), new_reference(arguments[1]), new_reference(arguments[2]), new_reference(arguments[3])};
  return new_reference(none());
}

Object* set_guard(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 2) return raise_text("set_guard takes 2 arguments");
  of_thread.own = {PyLong_AsLongLong(arguments[0]), is_true(arguments[1])};
  return new_reference(none());
}

Object* set_process_guard(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 2) return raise_text("set_process_guard takes 2 arguments");
  of_process = {PyLong_AsLongLong(arguments[0]), is_true(arguments[1])};
  return new_reference(none());
}

Object* leave_next(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count != 2) return raise_text("leave_next takes 2 arguments");
  of_thread.leave(PyLong_AsLongLong(arguments[0]), is_true(arguments[1]));
  return new_reference(none());
}

Object* take_uncounted(Object*, Object* const*, std::ptrdiff_t) {
  Reference counts = Reference::of_new(PyTuple_New(3));
  if (!counts) return nullptr;
  of_thread.forget_time_before_reset();
  PyTuple_SetItem(counts.get(), 0, PyLong_FromLongLong(std::exchange(of_thread.disabled, 0)));
  PyTuple_SetItem(counts.get(), 1, PyLong_FromLongLong(std::exchange(of_thread.uncounted, 0)));
  PyTuple_SetItem(counts.get(), 2, new_reference(of_thread.are_not_faster ? &_Py_TrueStruct : &_Py_FalseStruct));
  return counts.release();
}

}  // namespace hindcast::python
