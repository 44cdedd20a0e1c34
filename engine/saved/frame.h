#pragma once
// One call of checkpoint().
//
// While the function runs, each tensor that autograd saves gets a *slot* instead of being kept. The saved-tensor hooks that autograd
// stores hold the frame and the slot's number. The first one to be unpacked runs the function again, under hooks that put the tensors
// saved then into the slots, in the same order. An exception ends that run once the last slot still needed is filled. Unpacking moves a
// tensor out of its slot, so a second backward of a retained graph finds the slots empty and recomputes them.
//
// The arguments are saved tensors too: autograd checks their versions, and in a nested checkpoint they get slots of the outer one.

#include "capture/function/random_state.h"
#include "engine/saved/autocast_state.h"
#include "engine/saved/recomputation.h"
#include "engine/saved/slot.h"
#include "hindcast/checkpoint.h"
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
  CheckpointFrame(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs, detail::CheckpointScope::Rerun rerun);

  std::unique_ptr<torch::autograd::SavedVariableHooks> next() override;
  bool must_repeat() const override { return true; }
  /// The function has returned, or thrown.
  void forward_is_over() noexcept;

  /// A slot for a tensor that the forward saves.
  std::size_t add(const at::Tensor& saved);
  /// Moves the slot's tensor out; recomputes it if the slot is empty.
  at::Tensor take(std::size_t slot);
  /// The slot will not be asked for again.
  void leave(std::size_t slot) noexcept;

 private:
  std::vector<Versioned> recompute() const;
  std::vector<at::Tensor> unpack_inputs() const;
  Expected expected() const;

  const CheckpointOptions options_;
  const detail::CheckpointScope::Rerun rerun_;
  const AutocastState autocast_;
  const hooks::StartStreams streams_;
  std::vector<torch::autograd::SavedVariable> inputs_;
  // Guarded by the mutex in frame.cpp.
  capture::RandomState random_;  // empty if no random numbers were drawn, or if they need not be repeated
  std::deque<Slot> slots_;       // one per tensor saved so far
  bool has_custom_functions_ = false;
  bool is_forward_over_ = false;
};

}  // namespace hindcast::engine
