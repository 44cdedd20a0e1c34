#include "engine/saved/frame.h"

#include "base/fork.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <utility>

namespace hindcast::engine {
namespace {

// One mutex for all frames, held briefly, never while user code runs or a tensor is destroyed. Two threads that need the same tensors
// therefore both compute them.
base::ForkSafe<std::mutex>& slots_mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);

// Saved-tensor hooks that replace a tensor saved by the forward.
class SlotHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SlotHooks(std::shared_ptr<CheckpointFrame> frame) : frame_(std::move(frame)) {}
  ~SlotHooks() override {
    if (slot_) frame_->leave(*slot_);
  }
  void call_pack_hook(const at::Tensor& tensor) override { slot_ = frame_->add(tensor); }
  at::Tensor call_unpack_hook() override { return frame_->take(*slot_); }

 private:
  const std::shared_ptr<CheckpointFrame> frame_;
  std::optional<std::size_t> slot_;  // nullopt if LibTorch has not packed anything
};

// The node of a torch::autograd::Function, C++ or Python, holds the results that it is about to save. An exception from there would leave
// the node and its results in a reference cycle.
bool is_of_custom_function(const at::Tensor& saved) {
  const torch::autograd::Node* node = saved.requires_grad() ? torch::autograd::impl::grad_fn_unsafe(saved) : nullptr;
  if (node == nullptr) return false;
  const std::string_view name = typeid(*node).name();
  return name.starts_with("N5torch8autograd7CppNodeI") || name == "N5torch8autograd6PyNodeE";
}

// Sets the random state for the rerun, and restores the thread's own after it.
class WithRandomState {
 public:
  explicit WithRandomState(const capture::RandomState& state) : before_(state.now()) { state.restore(); }
  ~WithRandomState() { before_.restore(); }
  WithRandomState(const WithRandomState&) = delete;
  WithRandomState& operator=(const WithRandomState&) = delete;

 private:
  const capture::RandomState before_;
};

}  // namespace

CheckpointFrame::CheckpointFrame(const CheckpointOptions& options, const std::vector<at::Tensor>& inputs,
                                 detail::CheckpointScope::Rerun rerun)
    : options_(options),
      rerun_(std::move(rerun)),
      autocast_(AutocastState::now()),
      streams_(hooks::accelerators_of(inputs)),
      random_(options.preserve_rng_state ? capture::RandomState::of(inputs) : capture::RandomState()) {
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
}

std::unique_ptr<torch::autograd::SavedVariableHooks> CheckpointFrame::next() { return std::make_unique<SlotHooks>(shared_from_this()); }

// Most functions draw no random numbers. The backward then leaves the generators alone, since other threads may be drawing from them.
void CheckpointFrame::forward_is_over() noexcept {
  bool has_drawn = true;
  try {
    has_drawn = random_.defined() && !random_.is_same(random_.now());
  } catch (...) {  // treat it as if it had drawn
  }
  capture::RandomState unused;
  const std::lock_guard lock(slots_mutex);
  if (!has_drawn) std::swap(unused, random_);
  is_forward_over_ = true;
}

std::size_t CheckpointFrame::add(const at::Tensor& saved) {
  Slot slot(saved);
  const bool is_custom = is_of_custom_function(saved);
  const std::lock_guard lock(slots_mutex);
  has_custom_functions_ |= is_custom;
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

void CheckpointFrame::leave(std::size_t slot) noexcept {
  Versioned dropped;
  const std::lock_guard lock(slots_mutex);
  slots_[slot].is_wanted = false;
  std::swap(dropped, slots_[slot].recomputed);
}

at::Tensor CheckpointFrame::take(std::size_t slot) {
  Versioned found;
  {
    const std::lock_guard lock(slots_mutex);
    std::swap(found, slots_[slot].recomputed);
  }
  if (found.defined()) return found.checked();
  std::vector<Versioned> recomputed = recompute();
  std::swap(found, recomputed.at(slot));
  // Outside of a backward, only one saved tensor is being inspected: the others would stay in memory until there is a backward.
  if (torch::autograd::get_current_graph_task_id() != -1) {
    const std::lock_guard lock(slots_mutex);
    for (std::size_t i = 0; i < recomputed.size(); ++i) {
      if (i != slot && slots_[i].is_wanted && !slots_[i].recomputed.defined()) std::swap(slots_[i].recomputed, recomputed[i]);
    }
  }
  return found.checked();
}

Expected CheckpointFrame::expected() const {
  Expected expected;
  expected.ends_early = options_.early_stop;
  expected.is_compared = options_.check;
  const std::lock_guard lock(slots_mutex);
  expected.may_throw = !has_custom_functions_;
  for (const Slot& slot : slots_) {
    expected.facts.push_back(&slot.facts);
    if (slot.is_wanted) expected.needed = expected.facts.size();
  }
  expected.is_forward_over = is_forward_over_;
  return expected;
}

std::vector<at::Tensor> CheckpointFrame::unpack_inputs() const {
  std::vector<at::Tensor> inputs;
  for (const torch::autograd::SavedVariable& input : inputs_) inputs.push_back(input.unpack());
  return inputs;
}

std::vector<Versioned> CheckpointFrame::recompute() const {
  const std::vector<at::Tensor> inputs = unpack_inputs();  // in a nested checkpoint, this runs the outer function first
  capture::RandomState random;
  {
    const std::lock_guard lock(slots_mutex);
    random = random_;
  }
  Recomputation recomputation(expected());
  {
    const hooks::StartStreams::Scope on_streams(streams_, inputs);
    const WithRandomState with_random(random);
    const AutocastState::Scope with_autocast(autocast_);
    const c10::AutoGradMode grad(true);
    const hooks::SavedTensorScope scope(recomputation);
    try {
      rerun_(inputs);
    } catch (const Recomputation::Done&) {
    }
    on_streams.leave();
  }
  return std::move(recomputation).result();
}

}  // namespace hindcast::engine
