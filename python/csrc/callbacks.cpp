#include "python/csrc/callbacks.h"

#include "base/fork.h"
#include "base/interpreter_error.h"
#include "base/waits.h"
#include "capture/function/kept_tensors.h"
#include "capture/graph/known_op.h"
#include "capture/recorder/tracing_tensor.h"
#include "capture/recorder/where_in_code.h"
#include "hindcast/symbols.h"
#include "python/csrc/torch_functions.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <dlfcn.h>

#include <utility>

namespace hindcast::python {
namespace {

using torch::jit::Stack;

// See KeepsErrors.
thread_local bool keeps_errors = false;
thread_local std::optional<int64_t> torch_functions;

// Calls Python's kernel directly, so that neither autograd nor a recorder sees the operator.
Stack call(const c10::OperatorHandle& op, Stack stack) {
  std::optional<TorchFunctions> functions;
  if (torch_functions) functions.emplace(static_cast<at::impl::TorchFunctionDisabledState>(*torch_functions));
  // Does not apply to what the Python code calls in turn.
  const bool keeps_before = std::exchange(keeps_errors, false);
  const auto functions_before = std::exchange(torch_functions, std::nullopt);
  const auto restore = [&] {
    keeps_errors = keeps_before;
    torch_functions = functions_before;
  };
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return stack;
}

c10::List<std::optional<at::Tensor>> optional_tensors(const std::vector<at::Tensor>& tensors) {
  c10::List<std::optional<at::Tensor>> list;
  list.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
  return list;
}

std::vector<at::Tensor> tensors_of(const c10::IValue& list) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& item : list.toListRef()) tensors.push_back(item.isNone() ? at::Tensor() : item.toTensor());
  return tensors;
}

capture::TracingTensor::Symbols takes_symbols(const std::vector<c10::SymInt>& sizes) {
  static constinit capture::KnownOp op("hindcast::aot_python_takes_symbols");
  c10::List<bool> is_symbol, is_steady;
  for (const c10::SymInt& size : sizes) {
    is_symbol.push_back(size.is_symbolic());
    is_steady.push_back(capture::SymbolTable::is_steady(size));
  }
  return static_cast<capture::TracingTensor::Symbols>(call(op.get(), {is_symbol, is_steady}).at(0).toInt());
}

at::Scalar number_in_place_of(const at::Tensor& placeholder) {
  static constinit capture::KnownOp op("hindcast::aot_python_number_in_place_of");
  const auto results = call(op.get(), {placeholder});  // a symbol that is returned as a Scalar becomes a number
  const c10::SymInt symbol = results.at(1).toSymInt();
  return symbol.is_symbolic() ? at::Scalar(symbol) : results.at(0).toScalar();
}

template <class Function>
Function python_function(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// A thread with the GIL waits without it for a lock whose holder may need the GIL.
void wait_without_gil(void (*wait)(void*), void* argument) {
  struct Functions {
    int (*has_gil)() = python_function<int (*)()>("PyGILState_Check");
    void* (*release)() = python_function<void* (*)()>("PyEval_SaveThread");
    void (*take)(void*) = python_function<void (*)(void*)>("PyEval_RestoreThread");
  };
  static constinit base::MadeOnce<const Functions> made;
  const Functions& python = made.get();
  if (python.has_gil == nullptr || python.release == nullptr || python.take == nullptr || python.has_gil() == 0) return wait(argument);
  void* const thread = python.release();
  try {
    wait(argument);
  } catch (...) {
    python.take(thread);
    throw;
  }
  python.take(thread);
}

[[maybe_unused]] const bool waits_without_gil = (base::wait_without_interpreter_by(wait_without_gil), true);

void forget_error() {
  struct Functions {
    int (*take_gil)() = python_function<int (*)()>("PyGILState_Ensure");
    void (*leave_gil)(int) = python_function<void (*)(int)>("PyGILState_Release");
    void (*clear)() = python_function<void (*)()>("PyErr_Clear");
  };
  static constinit base::MadeOnce<const Functions> made;
  const Functions& python = made.get();
  if (python.take_gil == nullptr || python.leave_gil == nullptr || python.clear == nullptr) return;
  const int state = python.take_gil();
  python.clear();
  python.leave_gil(state);
}

[[maybe_unused]] const bool forgets_errors = (base::forget_interpreter_error_by(forget_error), true);

void throw_if_raised(const c10::IValue& error) {
  if (!error.isNone()) throw PythonError(error.toStringRef());
}

}  // namespace

bool sizes_are_numbers() {
  // A query with the GIL held comes from Python code. PyTorch's bindings release the GIL before they call an op, so formulas get symbols.
  using Check = int (*)();
  static constinit base::MadeOnce<const Check> has_gil;
  if (has_gil.by([] { return python_function<Check>("PyGILState_Check"); }) == nullptr) return false;
  static constexpr capture::TracingTensor::Interpreter python = {
      .is_asking = [] { return has_gil.get()() != 0; }, .takes_symbols = &takes_symbols, .number_in_place_of = &number_in_place_of};
  capture::TracingTensor::give_numbers_to(python);
  return true;
}

void collect_garbage() {
  // Calls only builtin functions: a signal handler may raise an exception whenever a function written in Python starts.
  struct Functions {
    int (*take_gil)() = python_function<int (*)()>("PyGILState_Ensure");
    void (*leave_gil)(int) = python_function<void (*)(int)>("PyGILState_Release");
    ptrdiff_t (*collect)() = python_function<ptrdiff_t (*)()>("PyGC_Collect");
    void* (*import)(const char*) = python_function<void* (*)(const char*)>("PyImport_ImportModule");
    void* (*call)(void*, const char*, const char*,
                  ...) = python_function<void* (*)(void*, const char*, const char*, ...)>("PyObject_CallMethod");
    void (*release)(void*) = python_function<void (*)(void*)>("Py_DecRef");
    void (*clear_error)() = python_function<void (*)()>("PyErr_Clear");
    int (*is_enabled)() = python_function<int (*)()>("PyGC_IsEnabled");
    bool are_all_found() const { return take_gil && leave_gil && collect && import && call && release && clear_error && is_enabled; }
    void collect_young() const {
      if (is_enabled() == 0) return;
      void* const gc = import("gc");
      void* const count = gc == nullptr ? nullptr : call(gc, "collect", "i", 1);
      if (count == nullptr) clear_error();
      for (void* const object : {gc, count}) {
        if (object != nullptr) release(object);
      }
    }
  };
  static constinit base::MadeOnce<const Functions> made;
  if (!made.get().are_all_found()) return;
  capture::collect_garbage_by([](bool all) {
    const Functions& python = made.get();
    const int state = python.take_gil();
    if (all) {
      python.collect();
    } else {
      python.collect_young();
    }
    python.leave_gil(state);
  });
}

void find_lines() {
  capture::find_lines_by([] {
    static constinit capture::KnownOp op("hindcast::aot_python_line");
    return call(op.get(), {}).at(0).toStringRef();
  });
}

KeepsErrors::KeepsErrors(std::optional<int64_t> functions)
    : keeps_before_(std::exchange(keeps_errors, true)), functions_before_(std::exchange(torch_functions, functions)) {}
KeepsErrors::~KeepsErrors() {
  keeps_errors = keeps_before_;
  torch_functions = functions_before_;
}

CallbackResult call_function(int64_t number, const std::vector<at::Tensor>& inputs) {
  static constinit capture::KnownOp op("hindcast::aot_python_function");
  const Stack result = call(op.get(), {number, optional_tensors(inputs), keeps_errors});
  throw_if_raised(result.at(4));
  return {tensors_of(result.at(0)), result.at(1).toInt(), result.at(2).toStringRef(), static_cast<size_t>(result.at(3).toInt())};
}

int64_t call_compiler(int64_t number, int64_t graph, const std::vector<at::Tensor>& examples) {
  static constinit capture::KnownOp op("hindcast::aot_python_compiler");
  const Stack result = call(op.get(), {number, graph, optional_tensors(examples)});
  if (!result.at(1).isNone()) throw std::runtime_error(result.at(1).toStringRef());
  return result.at(0).toInt();
}

std::vector<at::Tensor> call_program(int64_t number, const std::vector<at::Tensor>& inputs) {
  static constinit capture::KnownOp op("hindcast::aot_python_program");
  const Stack result = call(op.get(), {number, optional_tensors(inputs), keeps_errors});
  throw_if_raised(result.at(1));
  return tensors_of(result.at(0));
}

}  // namespace hindcast::python
