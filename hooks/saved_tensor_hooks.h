#pragma once
// Hooks for tensors that autograd saves, from C++: what torch.autograd.graph.saved_tensors_hooks is to Python.
//
// LibTorch asks its engine for the hooks of each tensor that it is about to save, and its own C++ engine has none. Our engine asks here
// (engine/takeover.cpp). Python has a stack of its own, which Python's engine looks at: the scope that was opened last counts, whichever
// of the two it is in.

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstddef>
#include <memory>

namespace hindcast::hooks {

class SavedTensorHooks {
 public:
  /// For the tensor that is saved next. LibTorch drops them without a call where that is a number as a tensor.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> next() = 0;
  /// True: the same tensors are saved once more later, in the same order, so that nothing may choose another way meanwhile.
  virtual bool must_repeat() const = 0;

 protected:
  ~SavedTensorHooks() = default;
};

/// While alive, tensors that this thread saves get these hooks. Goes on the thread that made it, in any order. Throws c10::Error where
/// somebody has disabled such hooks.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks& hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  friend SavedTensorHooks* current_saved_tensor_hooks();
  SavedTensorHooks& hooks_;
  const std::size_t python_depth_;  // scopes of Python that were open before
  SavedTensorScope* outer_;
};

/// Of this thread's innermost scope; null: there is none, or Python has opened one within.
SavedTensorHooks* current_saved_tensor_hooks();

}  // namespace hindcast::hooks
