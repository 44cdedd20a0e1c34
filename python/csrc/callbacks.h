#pragma once
// Calls from C++ into Python without Python's headers: operators whose kernels hindcast/_aot.py registers. Such a kernel takes the GIL.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace hindcast::python {

/// Python code raised, and Python has kept the exception for this thread. The text is what `str()` says of it.
class PythonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Makes sizes numbers in Python code that is traced with symbols for sizes, but where symbols go unnoticed (hindcast/_size_flow.py). False:
/// not in this interpreter.
bool sizes_are_numbers();

/// Before a function counts as keeping a tensor, Python's garbage collector runs.
void collect_garbage();

/// Messages say in which line of Python's code a trace ended.
void find_lines();

/// While alive, an exception of a callback is a PythonError; else it is what LibTorch's bindings make of it. For a call whose own
/// caller, in Python, raises the kept exception again. `torch_functions`: what callbacks find them to be.
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

/// Of a Python function on tensors: its tensors, and the number under which Python keeps what else it returned.
struct CallbackResult {
  std::vector<at::Tensor> tensors;
  int64_t shape = 0;
  std::string facts;  // equal for equal shapes
};
CallbackResult call_function(int64_t number, const std::vector<at::Tensor>& inputs);

/// Of a Python compiler of programs; 0: it leaves the program to ATen. Throws what it raises as an error of C++.
int64_t call_compiler(int64_t number, int64_t graph, const std::vector<at::Tensor>& examples);

/// Of a program that a Python compiler has made. Undefined tensors are None.
std::vector<at::Tensor> call_program(int64_t number, const std::vector<at::Tensor>& inputs);

}  // namespace hindcast::python
