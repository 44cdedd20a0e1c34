#include "engine/cuda_graphs/recorded_region.h"

#include "base/check.h"
#include "base/first_line.h"
#include "base/log.h"
#include "base/thread_number.h"
#include "codegen/kernel/launch_args.h"
#include "codegen/kernel/operand_copies.h"
#include "codegen/plan/execute.h"
#include "engine/counters/stats_recorder.h"
#include "engine/cuda_graphs/one_capture.h"
#include "engine/cuda_graphs/order_of_launches.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace hindcast::engine {
namespace {

using capture::EventKind;
using codegen::kNoSlot;
using codegen::Slots;
using codegen::Step;

int64_t bytes_of(const at::Tensor& tensor) { return without_repeats(tensor).numel() * static_cast<int64_t>(tensor.element_size()); }

// For a lazy clone that has not been materialised, the address of its source.
uintptr_t address_of(const at::Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()); }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

using Storages = std::vector<const c10::StorageImpl*>;
Storages storages_of(const Step& step, const Slots& slots) {
  Storages storages;
  for_each_slot(step, [&](codegen::SlotUse use) {
    if (storage_of(slots[use.slot]) != nullptr) storages.push_back(storage_of(slots[use.slot]));
  });
  return storages;
}

// The memory where an input was, and how far it has moved.
struct Place {
  uintptr_t begin, end;
  int64_t distance;
};
// Kernels have addresses, not tensors: inputs that shared memory must have moved by the same distance.
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
  if (!why_not_.empty() || backend_.is_captured(region_.device).value_or(false)) return false;
  const bool is_misfit = recording_ && !fits(call);
  if (is_misfit) {
    forget();
    if (++misfits_ == kMostMisfits) give_up(call, "its inputs lie elsewhere again and again");
  }
  if (!recording_) {
    watch(call, is_misfit);
    if (!why_not_.empty() || !is_known_to_thread(call) || !changed_numbers_.empty() || hits_ <= kHitsBeforeRecording ||
        backend_.compiles_for_calls())
      return false;
    if (!record(call)) return false;
  }
  launch(call, delivered);
  return true;
}

// LibTorch's libraries create per-thread state, such as a cuBLAS handle, on first use, which fails during a CUDA graph capture. So a thread
// must run the steps once before it captures them.
bool RecordedRegion::is_known_to_thread(const RegionCall& call) {
  constexpr size_t kMostThreads = 64;
  const uint32_t me = base::number_of_this_thread();
  if (std::find(threads_.begin(), threads_.end(), me) != threads_.end()) {
    new_threads_ = 0;
    return true;
  }
  if (threads_.size() == kMostThreads) threads_.erase(threads_.begin());
  threads_.push_back(me);
  if (++new_threads_ == kMostThreads) give_up(call, "each of its steps has a thread of its own");
  return false;
}

// Compares everything but the address.
bool RecordedRegion::is_as_it_was(size_t input, const at::Tensor& tensor) const {
  const Input& was = inputs_[input];
  if (!was.is_defined) return !tensor.defined();
  return tensor.defined() && tensor.sizes() == was.sizes && tensor.strides() == was.strides;
}

// Compares bits: -0 differs from 0, and NaN equals itself.
bool RecordedRegion::is_number_as_it_was(size_t i, const RegionCall& call) const {
  const at::Tensor& tensor = call.slots[region_.numbers[i]];
  return tensor.defined() && std::bit_cast<uint64_t>(codegen::number_in(tensor)) == std::bit_cast<uint64_t>(numbers_[i]);
}

// Also updates kernels' arguments to inputs' new addresses.
bool RecordedRegion::fits(const RegionCall& call) {
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (!is_number_as_it_was(i, call)) return false;
  }
  c10::SmallVector<codegen::MovedMemory, 4> moved;
  std::vector<Place> places;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    const at::Tensor& tensor = call.slots[region_.inputs[i]];
    if (!is_as_it_was(i, tensor)) return false;
    if (!input.is_defined || input.copy.defined()) continue;
    const auto distance = static_cast<int64_t>(address_of(tensor) - input.address);
    if (distance != 0 && input.is_read_by_ops) return false;
    places.push_back({input.memory.begin, input.memory.end, distance});
    if (distance == 0) continue;
    const uintptr_t to = input.memory.begin + static_cast<uintptr_t>(distance);
    moved.push_back({reinterpret_cast<const void*>(input.memory.begin), reinterpret_cast<const void*>(to),
                     static_cast<int64_t>(input.memory.end - input.memory.begin)});
  }
  if (moved.empty()) return true;
  try {
    if (!move_alike(places) || !recording_->move(moved)) return false;
  } catch (const std::exception& error) {
    HC_LOG(CudaGraphs, Warning, "graph {}: the addresses of kernels could not be updated: {}", call.plan.graph().id,
           base::first_line(error));
    return false;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) note_place(inputs_[i], call.slots[region_.inputs[i]]);
  return true;
}

void RecordedRegion::note_place(Input& input, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  input.address = address_of(tensor);
  input.memory = capture::memory_of(tensor);
}

void RecordedRegion::watch(const RegionCall& call, bool is_misfit) {
  ++hits_;
  watch_numbers(call);
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
    // The allocator may settle between the first two hits; large tensors may move once more, for example when validation begins.
    const bool may_settle = hits_ <= 2 || (is_misfit && bytes_of(tensor) >= kLargestCopiedInput);
    input.moves = input.moves || (!may_settle && input.address != address_of(tensor));
    note_place(input, tensor);
    input.sizes = tensor.sizes();
    input.strides = tensor.strides();
  }
}

void RecordedRegion::watch_numbers(const RegionCall& call) {
  const bool is_first = numbers_.empty();
  numbers_.resize(region_.numbers.size());
  for (size_t i = 0; i < numbers_.size(); ++i) {
    if (!is_first && !is_number_as_it_was(i, call)) changed_numbers_.push_back(region_.numbers[i]);
    const at::Tensor& tensor = call.slots[region_.numbers[i]];
    if (!tensor.defined()) return give_up(call, "a number of the CPU is not there");
    numbers_[i] = codegen::number_in(tensor);
  }
}

// Runs during the CUDA graph capture: only the host's part of each step has effects, on tensors whose values are not computed.
void RecordedRegion::run_steps(const RegionCall& call, Slots& slots) {
  for (uint32_t i = region_.first; i < region_.last; ++i) {
    const Step& step = call.plan.steps()[i];
    if (step.kind != capture::InstrKind::Event) {
      const Storages read = storages_of(step, slots);
      const uint64_t copies = codegen::operand_copies();
      codegen::run_step(step, slots, call.env);
      const bool is_kernel = step.call_op && step.call_op->writes_leaves();  // the CUDA graph can update its arguments
      if (!is_kernel || codegen::operand_copies() != copies) note_readers(read, step, slots);
      continue;
    }
    if (std::binary_search(region_.results.begin(), region_.results.end(), i)) keep(call, {.step = i}, slots[step.inputs[0].slot]);
    for (const codegen::SlotUse use : step.inputs) {
      if (use.slot != kNoSlot && use.last) slots[use.slot].reset();
    }
  }
  for (const uint32_t slot : region_.outputs) keep(call, {.slot = slot}, slots[slot]);
}

// A step whose results all share an input's storage is a view, and reads nothing.
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
    const bool is_read_alike =
        input.scalar_type() == tensor.scalar_type() && input.is_conj() == tensor.is_conj() && input.is_neg() == tensor.is_neg();
    if (!is_read_alike) HC_UNSUPPORTED("a result is the memory of an input, read as other numbers");
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
  if (const std::string why_not = backend_.why_not_recorded(region_.device); !why_not.empty()) return give_up(call, why_not), false;
  Slots slots = call.slots;  // a second reference to each input, so that no step reuses an input's memory for a result
  copied_bytes_ = 0;
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
    const auto alone = one_capture();
    recording_ = backend_.record(region_.device, [&] {
      try {
        run_steps(call, slots);
      } catch (...) {
        made_.clear();  // before the memory that they are in
        slots.clear();
        throw;
      }
      slots.clear();
    });
  } catch (const std::exception& error) {
    return not_captured(call, base::first_line(error)), false;
  }
  bytes_ = recording_->bytes();
  for (const Input& input : inputs_) bytes_ += input.copy.defined() ? input.copy.storage().nbytes() : 0;
  const bool ops_read_what_moves = std::any_of(
      inputs_.begin(), inputs_.end(), [](const Input& input) { return input.moves && !input.copy.defined() && input.is_read_by_ops; });
  if (ops_read_what_moves) return give_up(call, "an op reads a large input that lies elsewhere from step to step"), false;
  if (copied_bytes_ > kMostCopiedForACall * int64_t{region_.calls})
    return give_up(call, "more would be copied than its launches cost", base::format("{} bytes", copied_bytes_)), false;
  stats_recorder().add_recording();
  HC_LOG(CudaGraphs, Info, "graph {}: steps {} to {} are recorded: {} that compute, {} bytes of memory, {} bytes copied each time",
         call.plan.graph().id, region_.first, region_.last, region_.calls, bytes(), copied_bytes_);
  return true;
}

// The failure may be temporary (out of memory, another thread's work): later hits try again.
void RecordedRegion::not_captured(const RegionCall& call, const std::string& why) {
  forget();
  if (++failures_ == kMostFailures) return give_up(call, "its steps cannot be captured", why);
  HC_LOG(CudaGraphs, Info, "graph {}: steps {} to {} could not be captured this time: {}", call.plan.graph().id, region_.first,
         region_.last, why);
}

// While the device runs the launch, the host allocates the results' memory.
void RecordedRegion::launch(const RegionCall& call, std::vector<Delivered>& delivered) {
  const OrderOfLaunches order(region_.device);
  copy_inputs(call);
  recording_->launch();
  Delivery delivery(made_.size());
  for (const Made& made : made_) deliver(call, made, delivery);
  delivery.run();
  delivered = std::move(delivery.delivered());
  stats_recorder().add_recording_launch();
}

void RecordedRegion::copy_inputs(const RegionCall& call) {
  std::vector<at::Tensor> copies, moved;
  const c10::impl::VirtualGuardImpl device(region_.device.type());
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].copy.defined()) continue;
    // The copy may be freed before the launch is done.
    device.recordDataPtrOnStream(inputs_[i].copy.storage().data_ptr(), device.getStream(region_.device));
    copies.push_back(without_repeats(inputs_[i].copy));
    moved.push_back(without_repeats(call.slots[region_.inputs[i]]));
  }
  if (!copies.empty()) at::_foreach_copy_(copies, moved);
}

void RecordedRegion::deliver(const RegionCall& call, const Made& made, Delivery& delivery) const {
  at::Tensor tensor = made.tensor;
  if (made.input != kNoSlot) {
    const at::Tensor& input = call.slots[region_.inputs[made.input]];
    tensor = at::as_strided(input, made.sizes, made.strides, input.storage_offset() + made.offset);
  }
  if (made.slot != kNoSlot) {
    call.slots[made.slot] = delivery.copy(tensor);
    return;
  }
  const Step& step = call.plan.steps()[made.step];
  if (call.plan.event_of(step).kind == EventKind::Accumulate) {
    delivery.to_leaf(static_cast<torch::autograd::AccumulateGrad&>(*call.collected.calls[step.origin].node), tensor, made.step);
  } else {
    delivery.to_result(tensor, made.step);
  }
}

void RecordedRegion::forget() {
  made_.clear();
  recording_.reset();
  bytes_ = 0;
  for (Input& input : inputs_) input.copy.reset();
}

void RecordedRegion::give_up(const RegionCall& call, std::string why, const std::string& detail) {
  forget();
  why_not_ = std::move(why);
  stats_recorder().add_not_recorded(why_not_);
  HC_LOG(CudaGraphs, Info, "graph {}: steps {} to {} are run one by one: {}{}{}", call.plan.graph().id, region_.first, region_.last,
         why_not_, detail.empty() ? "" : ": ", detail);
}

}  // namespace hindcast::engine
