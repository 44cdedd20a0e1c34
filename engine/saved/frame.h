#pragma once
// One call of checkpoint().
//
// While the function runs, each tensor that autograd saves gets a *slot* instead of being kept. The hooks that autograd keeps in its
// place hold the frame and the number of the slot. When the first of them is asked for its tensor, the function runs again, under hooks
// that put what is saved then into the slots, in the same order. An exception ends that run at the last slot that is still waited for. Each
// tensor leaves its slot when it is asked for: a second backward of a graph that was retained finds none, and computes them again.
//
// The arguments are saved tensors themselves: autograd checks their versions, and in a nested checkpoint they get a slot of the outer one.

#include "capture/function/random_state.h"
#include "engine/saved/autocast_state.h"
#include "engine/saved/checkpoint.h"
#include "engine/saved/recomputation.h"
#include "engine/saved/slot.h"
#include "hooks/saved_tensor_hooks.h"
#include "hooks/start_streams.h"

#include <torch/csrc/autograd/saved_variable.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

namespace hindcast::engine {

class CheckpointFrame final : public hooks::SavedTensorHooks, public std::enable_shared_from_this<CheckpointFrame> {
 public:
  CheckpointFrame(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, CheckpointScope::Rerun rerun);

  std::unique_ptr<torch::autograd::SavedVariableHooks> next() override;
  bool must_repeat() const override { return true; }
  /// The function has returned, or thrown.
  void forward_is_over() noexcept;

  /// A slot for a tensor that the forward saves.
  std::size_t add(const at::Tensor& saved);
  /// What the slot is for, computed again if it is empty.
  at::Tensor take(std::size_t slot);
  /// Nobody will ask for the slot again.
  void leave(std::size_t slot) noexcept;

 private:
  std::vector<Versioned> recompute() const;
  std::vector<at::Tensor> unpack_inputs() const;
  Expected expected() const;

  const CheckpointOptions options_;
  const CheckpointScope::Rerun rerun_;
  const AutocastState autocast_;
  const hooks::StartStreams streams_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  // Behind the lock of frame.cpp.
  capture::RandomState random_;  // of no generator: nothing was drawn, or nobody cares
  std::deque<Slot> slots_;       // as many as were saved so far
  bool has_custom_functions_ = false;
  bool is_forward_over_ = false;
};

}  // namespace hindcast::engine
