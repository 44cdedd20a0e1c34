#pragma once
// Saved-tensor hooks for the second run of a checkpoint's function: they collect what is saved, compare it with the forward, and end the run.

#include "engine/saved/slot.h"
#include "hooks/saved_tensor_hooks.h"

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

namespace hindcast::engine {

/// What a second run has to give.
struct Expected {
  std::vector<const SavedFacts*> facts;  // of all that the forward saved so far
  std::size_t needed = 0;                // the first so many hold all that is still asked for
  bool is_forward_over = false;
  bool ends_early = true, is_compared = true;
  bool may_throw = true;  // while something is saved; else the run goes to its end
};

class Recomputation final : public hooks::SavedTensorHooks {
 public:
  /// Ends the run. No std::exception, so that code which handles errors does not take it for one.
  struct Done {};

  explicit Recomputation(Expected expected) : expected_(std::move(expected)) {}

  std::unique_ptr<torch::autograd::SavedVariableHooks> next() override;
  bool must_repeat() const override { return true; }

  /// Takes the next tensor. Throws Done with the last one, and where something is wrong.
  void save(const at::Tensor& tensor);
  /// After the run: what was saved. Throws CheckpointError, or c10::Error, if it is not as in the forward.
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
