#pragma once
// Calls from C++ into Python without Python's headers, through operators whose kernels hindcast/_callbacks.py registers. These take the
// GIL.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace hindcast::python {

/// Python code raised, and Python has kept the exception for this thread. The text is its `str()`.
class PythonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In Python code that is traced with symbols for sizes, makes sizes plain numbers, except where a symbol makes no difference
/// (hindcast/_symbols_for_code.py). Returns false if this interpreter does not support it.
bool sizes_are_numbers();

/// Lets traces run Python's garbage collector before they decide that a function keeps a tensor.
void collect_garbage();

/// Makes messages name the line of Python code in which a trace ended.
void find_lines();

/// While alive, an exception of a callback is thrown as a PythonError; otherwise as LibTorch's bindings convert it. For calls whose Python
/// caller raises the kept exception again. `torch_functions`: the torch-function state under which callbacks run.
class KeepsErrors {
 public:
  explicit KeepsErrors(std::optional<int64_t> torch_functions);
  ~KeepsErrors();
  KeepsErrors(const KeepsErrors&) = delete;
  KeepsErrors& operator=(const KeepsErrors&) = delete;

 private:
  const bool keeps_before_;
  const std::optional<int64_t> functions_before_;
};

/// The result of a Python function: its tensors, and the number under which Python keeps its non-tensor results.
struct CallbackResult {
  std::vector<at::Tensor> tensors;
  int64_t shape = 0;
  std::string facts;  // equal for equal shapes
  size_t owned = 0;   // FunctionOutput::owned
};
CallbackResult call_function(int64_t number, const std::vector<at::Tensor>& inputs);

/// Calls a Python program compiler. Returns the number of its program, or 0 if it leaves the program to ATen. Rethrows what it raises as a
/// C++ exception.
int64_t call_compiler(int64_t number, int64_t graph, const std::vector<at::Tensor>& examples);

/// Calls a program that a Python compiler has made. Undefined tensors are None.
std::vector<at::Tensor> call_program(int64_t number, const std::vector<at::Tensor>& inputs);

}  // namespace hindcast::python
