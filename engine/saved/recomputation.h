#pragma once
// Saved-tensor hooks for the rerun of a checkpoint's function: they collect what is saved, compare it with the forward, and end the run.

#include "engine/saved/slot.h"
#include "hooks/saved_tensor_hooks.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

namespace hindcast::engine {

/// What the rerun must produce.
struct Expected {
  std::vector<const SavedFacts*> facts;  // of all tensors that the forward has saved so far
  std::size_t needed = 0;                // this many of the first ones cover all that are still needed
  bool is_forward_over = false;
  bool ends_early = true, is_compared = true;
  bool may_throw = true;  // an exception may leave save(); otherwise the run goes to its end
};

class Recomputation final : public hooks::SavedTensorHooks {
 public:
  /// Thrown to end the run. Not a std::exception, so that error handlers do not catch it.
  struct Done {};

  explicit Recomputation(Expected expected) : expected_(std::move(expected)) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> next() override;
  bool must_repeat() const override { return true; }

  /// Takes the next tensor. Throws Done after the last one, and on a mismatch.
  void save(const at::Tensor& tensor);
  /// After the run: what was saved. Throws CheckpointError, or c10::Error, if it does not match the forward.
  std::vector<Versioned> result() &&;

 private:
  void compare(std::size_t number, const at::Tensor& tensor) const;

  const Expected expected_;
  std::size_t count_ = 0;
  std::vector<Versioned> saved_;
  std::exception_ptr error_;
  bool is_done_ = false;
};

}  // namespace hindcast::engine
