#pragma once
// Hooks for tensors that autograd saves, from C++: the counterpart of torch.autograd.graph.saved_tensors_hooks.
//
// LibTorch asks its engine for the hooks of each tensor that it is about to save, and its own C++ engine has none. Our engine asks here
// (engine/takeover.cpp). Python's engine has a separate stack of Python hooks; the scope that was opened last applies, whichever stack it
// is in.

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <cstddef>
#include <memory>

namespace hindcast::hooks {

class SavedTensorHooks {
 public:
  /// Returns the hooks for the next saved tensor. LibTorch drops them without a call if that tensor is a wrapped number.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> next() = 0;
  /// True: the same tensors will be saved again later, in the same order, so code must not take another path meanwhile.
  virtual bool must_repeat() const = 0;

 protected:
  ~SavedTensorHooks() = default;
};

/// While alive, tensors that this thread saves get these hooks. Must be destroyed on the thread that made it, in any order. Throws
/// c10::Error if such hooks are disabled.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHooks& hooks);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  friend SavedTensorHooks* current_saved_tensor_hooks();
  SavedTensorHooks& hooks_;
  const std::size_t python_depth_;  // open Python scopes when this was made
  SavedTensorScope* outer_;
};

/// Hooks of this thread's innermost scope; nullptr if no scope is open, or if Python has opened one inside it.
SavedTensorHooks* current_saved_tensor_hooks();

}  // namespace hindcast::hooks
