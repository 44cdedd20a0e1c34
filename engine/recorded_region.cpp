#include "engine/recorded_region.h"

#include "base/check.h"
#include "base/log.h"
#include "codegen/plan/execute.h"
#include "engine/counters/stats_recorder.h"
#include "engine/order_of_launches.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/as_strided.h>

#include <algorithm>
#include <utility>

namespace hindcast::engine {
namespace {

using capture::EventKind;
using codegen::kNoSlot;
using codegen::Slots;
using codegen::Step;

int64_t bytes_of(const at::Tensor& tensor) { return without_repeats(tensor).numel() * static_cast<int64_t>(tensor.element_size()); }
// From its first element to behind its last.
int64_t reach_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size()));
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

using Storages = std::vector<const c10::StorageImpl*>;
Storages storages_of(const Step& step, const Slots& slots) {
  Storages storages;
  for_each_slot(step, [&](codegen::SlotUse use) {
    if (use.slot != kNoSlot && storage_of(slots[use.slot]) != nullptr) storages.push_back(storage_of(slots[use.slot]));
  });
  return storages;
}

// Where an input was, and how far it is from there now.
struct Place {
  uintptr_t begin, end;
  int64_t distance;
};
// Kernels know places and no tensors: inputs that shared memory must have moved together.
bool move_alike(std::vector<Place>& places) {
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end && places[i].distance != places[i - 1].distance) return false;
    places[i].end = std::max(places[i].end, places[i - 1].end);
  }
  return true;
}

}  // namespace

bool RecordedRegion::run(const RegionCall& call, std::vector<Delivered>& delivered) {
  if (!why_not_.empty() || !backend_.why_not_recorded(region_.device).empty()) return false;
  if (recording_ && !fits(call)) forget();
  if (!recording_) {
    watch(call);
    if (!why_not_.empty() || hits_ <= kHitsBeforeRecording || !record(call)) return false;
  }
  launch(call, delivered);
  return true;
}

// But for its address.
bool RecordedRegion::is_as_it_was(size_t input, const at::Tensor& tensor) const {
  const Input& was = inputs_[input];
  if (!was.is_defined) return !tensor.defined();
  return tensor.defined() && tensor.sizes() == was.sizes && tensor.strides() == was.strides;
}

// Kernels are told of new places here.
bool RecordedRegion::fits(const RegionCall& call) {
  c10::SmallVector<codegen::MovedMemory, 4> moved;
  std::vector<Place> places;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    const at::Tensor& tensor = call.slots[region_.inputs[i]];
    if (!is_as_it_was(i, tensor)) return false;
    if (!input.is_defined || input.copy.defined()) continue;
    const void* const address = tensor.const_data_ptr();
    if (address != input.address && input.is_read_by_ops) return false;
    if (address != input.address) moved.push_back({input.address, address, reach_of(tensor)});
  }
  if (moved.empty()) return true;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    if (!input.is_defined || input.copy.defined()) continue;
    const at::Tensor& tensor = call.slots[region_.inputs[i]];
    const auto was = reinterpret_cast<uintptr_t>(input.address), is = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    places.push_back({was, was + static_cast<uintptr_t>(reach_of(tensor)), static_cast<int64_t>(is - was)});
  }
  if (!move_alike(places) || !recording_->move(moved)) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is_defined) inputs_[i].address = call.slots[region_.inputs[i]].const_data_ptr();
  }
  return true;
}

void RecordedRegion::watch(const RegionCall& call) {
  ++hits_;
  const bool is_first = inputs_.empty();
  inputs_.resize(region_.inputs.size());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& tensor = call.slots[region_.inputs[i]];
    Input& input = inputs_[i];
    if (is_first) {
      input.is_defined = tensor.defined();
    } else if (!is_as_it_was(i, tensor)) {
      return give_up(call, "an input is another tensor from step to step");
    }
    if (!tensor.defined()) continue;
    input.moves = input.moves || (!is_first && input.address != tensor.const_data_ptr());
    input.address = tensor.const_data_ptr();
    input.sizes = tensor.sizes();
    input.strides = tensor.strides();
  }
}

// What runs here is written down: the host's part of each step, on tensors whose values nobody has computed.
void RecordedRegion::run_steps(const RegionCall& call, Slots& slots) {
  for (uint32_t i = region_.first; i < region_.last; ++i) {
    const Step& step = call.plan.steps()[i];
    if (step.kind != capture::InstrKind::Event) {
      const Storages read = storages_of(step, slots);
      codegen::run_step(step, slots, call.env);
      if (!step.call_op || !step.call_op->writes_leaves()) note_readers(read, step, slots);
      continue;
    }
    const EventKind kind = call.plan.event_of(step).kind;
    const bool is_result = kind == EventKind::Accumulate || kind == EventKind::Capture;
    for (const codegen::SlotUse use : step.inputs) {
      if (use.slot == kNoSlot) continue;
      // What was there before the region, or is read behind it, is in its slot.
      if (is_result && !call.slots[use.slot].defined() && !is_output(use.slot)) keep(call, {.step = i}, slots[use.slot]);
      if (use.last) slots[use.slot].reset();
    }
  }
  for (const uint32_t slot : region_.outputs) keep(call, {.slot = slot}, slots[slot]);
}

// A step all of whose results are an input's memory is a view, and reads nothing.
void RecordedRegion::note_readers(const Storages& read, const Step& step, const Slots& slots) {
  for (const c10::StorageImpl* storage : read) {
    const auto is_view = [&](uint32_t slot) { return slot != kNoSlot && storage_of(slots[slot]) == storage; };
    if (std::all_of(step.outputs.begin(), step.outputs.end(), is_view)) continue;
    for (Input& input : inputs_) input.is_read_by_ops = input.is_read_by_ops || input.storage == storage;
  }
}

void RecordedRegion::keep(const RegionCall& call, Made made, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    made_.push_back(std::move(made));
    return;
  }
  if (!can_be_copied_as_it_lies(tensor)) HC_UNSUPPORTED("a result has elements that share memory, or memory that is not its values");
  copied_bytes_ += bytes_of(tensor);
  for (uint32_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& input = call.slots[region_.inputs[i]];
    if (inputs_[i].copy.defined() || !input.defined() || !input.is_alias_of(tensor)) continue;
    if (input.scalar_type() != tensor.scalar_type()) HC_UNSUPPORTED("a result is the memory of an input with another type");
    made.input = i;
    made.sizes = tensor.sizes();
    made.strides = tensor.strides();
    made.offset = tensor.storage_offset() - input.storage_offset();
    made_.push_back(std::move(made));
    return;
  }
  made.tensor = tensor;
  made_.push_back(std::move(made));
}

bool RecordedRegion::record(const RegionCall& call) {
  if (recordings_ == kMostRecordings) return give_up(call, base::format("it was recorded {} times already", recordings_)), false;
  Slots slots = call.slots;  // a second holder of each input, so that no step takes the memory of one for a result
  copied_bytes_ = 0;
  ++recordings_;
  try {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      at::Tensor& tensor = slots[region_.inputs[i]];
      inputs_[i].is_read_by_ops = false;
      inputs_[i].storage = storage_of(tensor);
      if (!inputs_[i].moves || bytes_of(tensor) >= kLargestCopiedInput || !can_be_copied_as_it_lies(tensor)) continue;
      copied_bytes_ += bytes_of(tensor);
      inputs_[i].copy = like(tensor);
      tensor = inputs_[i].copy;
    }
    recording_ = backend_.record(region_.device, [&] { run_steps(call, slots); });
  } catch (const std::exception& error) {
    return give_up(call, error.what()), false;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].moves && !inputs_[i].copy.defined() && inputs_[i].is_read_by_ops)
      return give_up(call, base::format("an op reads an input of {} bytes that lies elsewhere from step to step",
                                        call.slots[region_.inputs[i]].nbytes())),
             false;
  }
  if (copied_bytes_ > kMostCopiedForACall * int64_t{region_.calls})
    return give_up(call, base::format("{} bytes would be copied for {} steps", copied_bytes_, region_.calls)), false;
  stats_recorder().add_recording();
  HC_LOG(CudaGraphs, Info, "graph {}: steps {} to {} are recorded: {} that compute, {} bytes of memory, {} bytes copied each time",
         call.plan.graph().id, region_.first, region_.last, region_.calls, bytes(), copied_bytes_);
  return true;
}

void RecordedRegion::launch(const RegionCall& call, std::vector<Delivered>& delivered) {
  std::vector<at::Tensor> copies, moved;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].copy.defined()) continue;
    copies.push_back(without_repeats(inputs_[i].copy));
    moved.push_back(without_repeats(call.slots[region_.inputs[i]]));
  }
  const OrderOfLaunches order(region_.device);
  Delivery delivery(made_.size());
  for (const Made& made : made_) {
    at::Tensor tensor = made.tensor;
    if (made.input != kNoSlot) {
      const at::Tensor& input = call.slots[region_.inputs[made.input]];
      tensor = at::as_strided(input, made.sizes, made.strides, input.storage_offset() + made.offset);
    }
    if (made.slot != kNoSlot) {
      call.slots[made.slot] = delivery.copy(tensor);
      continue;
    }
    const Step& step = call.plan.steps()[made.step];
    if (call.plan.event_of(step).kind == EventKind::Accumulate) {
      delivery.to_leaf(static_cast<torch::autograd::AccumulateGrad&>(*call.collected.calls[step.origin].node), tensor, made.step);
    } else {
      delivery.to_result(tensor, made.step);
    }
  }
  if (!copies.empty()) at::_foreach_copy_(copies, moved);
  recording_->launch();
  delivery.run();
  delivered = std::move(delivery.delivered());
  stats_recorder().add_recording_launch();
}

size_t RecordedRegion::bytes() const {
  size_t bytes = recording_ ? recording_->bytes() : 0;
  for (const Input& input : inputs_) bytes += input.copy.defined() ? input.copy.storage().nbytes() : 0;
  return bytes;
}

void RecordedRegion::forget() {
  made_.clear();
  recording_.reset();
  for (Input& input : inputs_) input.copy.reset();
}

void RecordedRegion::give_up(const RegionCall& call, std::string why) {
  forget();
  why_not_ = std::move(why);
  stats_recorder().add_not_recorded(why_not_);
  HC_LOG(CudaGraphs, Info, "graph {}: steps {} to {} are run one by one: {}", call.plan.graph().id, region_.first, region_.last, why_not_);
}

}  // namespace hindcast::engine
