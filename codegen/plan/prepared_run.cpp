#include "codegen/plan/prepared_run.h"

#include "base/check.h"
#include "codegen/plan/execute.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/Contiguity.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <bit>
#include <iterator>

namespace hindcast::codegen {
namespace {

constexpr int64_t kAligned = 64, kIsTensor = -1;
// Bytes of the run's buffer: with more, the program is bound by its work and not by overhead.
constexpr int64_t kMostPlacedBytes = 2 << 20;
constexpr size_t kFewestCalls = 3;
// Of the runs without a matching prepared run, number first_recorded is recorded, then at doubling intervals: a program that runs only a
// few times records nothing.
std::atomic<uint32_t> first_recorded = 12;
constexpr uint32_t kLastRecorded = 1u << 10;

bool has_lazy_values(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kLazy({c10::DispatchKey::Negative, c10::DispatchKey::Conjugate, c10::DispatchKey::ZeroTensor});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kLazy);
}

char* memory_of(const at::Tensor& tensor) { return static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())); }

// A copy for prepared calls of what an op gave with other strides than when the run was recorded. The value itself stays as the op made it:
// results of the program may be views of it.
at::Tensor with_layout(const at::Tensor& tensor, const TensorLayout& layout) {
  HC_CHECK(tensor.defined() && tensor.sizes() == at::IntArrayRef(layout.sizes) && tensor.scalar_type() == layout.type && tensor.is_cpu(),
           "a step gives a tensor of another kind than in an earlier run with the same sizes");
  return at::empty_strided(layout.sizes, layout.strides, layout.type).copy_(tensor);
}

bool is_view(const PreparedCall& call) { return !call.views_at.empty(); }

bool is_dense(const TensorLayout& layout) {
  return c10::_compute_non_overlapping_and_dense(at::IntArrayRef(layout.sizes), at::IntArrayRef(layout.strides));
}

// Whether a tensor with the view's layout has all of the memory of one with the base's.
bool is_whole(const TensorLayout& base, const TensorLayout& view) {
  return base.type == view.type && is_dense(base) && is_dense(view) && base.bytes() == view.bytes();
}

bool may_be_prepared(const Plan& plan) {
  return !plan.is_as_captured() && plan.sizes_to_bind().empty() &&
         std::none_of(plan.steps().begin(), plan.steps().end(), [](const Step& step) { return step.kind == capture::InstrKind::Event; });
}

}  // namespace

TensorLayout TensorLayout::of(const at::Tensor& tensor) {
  return {at::DimVector(tensor.sizes()), at::DimVector(tensor.strides()), tensor.scalar_type()};
}

bool TensorLayout::is_of(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.sizes() == at::IntArrayRef(sizes) && tensor.strides() == at::IntArrayRef(strides) &&
         tensor.scalar_type() == type && tensor.is_cpu() && !has_lazy_values(tensor);
}

int64_t TensorLayout::bytes() const { return c10::multiply_integers(sizes) * static_cast<int64_t>(c10::elementSize(type)); }

// ---- recording

class PreparedRun::Recording {
 public:
  Recording(const Plan& plan, Slots& slots, const capture::Env& env) : plan_(plan), slots_(slots), env_(env) {}

  std::unique_ptr<const PreparedRun> run(const std::vector<int64_t>& sizes) {
    layouts_.resize(plan_.slot_count());
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) note_layout(slot);
    run_steps();
    find_readers();
    choose_prepared();
    auto made = std::unique_ptr<PreparedRun>(new PreparedRun);
    made->sizes_ = sizes;
    for (const capture::ValueId value : plan_.graph().inputs) {
      const uint32_t slot = plan_.slot_of(value);
      if (slot != kNoSlot && is_read_prepared(slot)) made->inputs_.push_back({slot, layouts_[slot].value()});
    }
    size_t calls = 0;
    for (uint32_t i = 0; i < calls_.size(); ++i) {
      if (is_absorbed_[i]) continue;
      made->items_.push_back(item_of(i));
      const PreparedCall* const call = made->items_.back().call.get();
      if (call == nullptr || is_view(*call)) continue;
      made->maker_ = call;
      ++calls;
    }
    return calls >= kFewestCalls && place_all(*made) ? std::move(made) : nullptr;
  }

 private:
  void note_layout(uint32_t slot) {
    const at::Tensor& tensor = slots_[slot];
    if (tensor.defined() && tensor.is_cpu() && tensor.has_storage()) layouts_[slot] = TensorLayout::of(tensor);
  }

  void run_steps() {
    for (const Step& step : plan_.steps()) {
      const bool may_be_prepared = step.call_op && step.leaves.empty() && !step.shares_version;
      calls_.push_back(may_be_prepared ? step.call_op->prepare(step, slots_, env_) : nullptr);
      run_step(step, slots_, env_);
      for (const uint32_t slot : step.outputs) {
        if (slot != kNoSlot) note_layout(slot);
      }
    }
  }

  void find_readers() {
    readers_.resize(plan_.slot_count());
    makers_.resize(plan_.slot_count());
    for (uint32_t i = 0; i < calls_.size(); ++i) {
      for_each_slot(plan_.steps()[i], [&](SlotUse use) { readers_[use.slot].push_back(i); });
      for (const uint32_t slot : plan_.steps()[i].outputs) {
        if (slot != kNoSlot) makers_[slot] = i;
      }
    }
    is_returned_.resize(plan_.slot_count());
    for (const capture::ValueId value : plan_.graph().outputs) {
      if (value.defined()) is_returned_[plan_.slot_of(value)] = true;
    }
  }

  // Makes a returned view of a whole value as the value itself, with the view's sizes and strides: a gradient t(t(x)) is one tensor. The
  // value and the views in between have no other reader.
  void absorb_returned_view(uint32_t view) {
    const auto& outputs = plan_.steps()[view].outputs;
    if (outputs.size() != 1 || outputs[0] == kNoSlot || !is_returned_[outputs[0]] || !layouts_[outputs[0]]) return;
    std::vector<uint32_t> views;
    for (uint32_t i = view;;) {
      const PreparedCall* const call = calls_[i].get();
      if (call == nullptr) return;
      if (!is_view(*call)) break;
      const uint32_t base = plan_.steps()[i].args[0].slots[0].slot;
      const bool is_only_reader = !is_returned_[base] && readers_[base] == std::vector<uint32_t>{i};
      if (!makers_[base] || !is_only_reader || call->views_at != std::vector<int64_t>{0}) return;
      if (!layouts_[base] || !is_whole(*layouts_[base], *layouts_[outputs[0]])) return;
      views.push_back(i);
      i = *makers_[base];
    }
    returned_as_[plan_.steps()[views.back()].args[0].slots[0].slot] = outputs[0];
    for (const uint32_t i : views) is_absorbed_[i] = true;
  }

  // Other views are prepared only if all their readers are. Goes backwards, so that readers are decided before the values that they read.
  void choose_prepared() {
    is_prepared_.resize(calls_.size());
    is_absorbed_.resize(calls_.size());
    returned_as_.assign(plan_.slot_count(), kNoSlot);
    for (uint32_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i] && is_view(*calls_[i])) absorb_returned_view(i);
    }
    for (size_t i = calls_.size(); i-- > 0;) {
      if (is_absorbed_[i]) {
        is_prepared_[i] = true;
        continue;
      }
      const auto& outputs = plan_.steps()[i].outputs;
      const auto is_wanted = [&](uint32_t slot) { return slot != kNoSlot && !is_only_read_prepared(slot); };
      if (calls_[i] && is_view(*calls_[i]) && std::any_of(outputs.begin(), outputs.end(), is_wanted)) calls_[i].reset();
      is_prepared_[i] = calls_[i] != nullptr;
    }
  }

  bool is_read_prepared(uint32_t slot) const {
    return std::any_of(readers_[slot].begin(), readers_[slot].end(), [&](uint32_t i) { return is_prepared_[i]; });
  }
  bool is_only_read_prepared(uint32_t slot) const {
    return !is_returned_[slot] && std::all_of(readers_[slot].begin(), readers_[slot].end(), [&](uint32_t i) { return is_prepared_[i]; });
  }

  Item item_of(uint32_t i) {
    const Step& step = plan_.steps()[i];
    Item item{i, std::move(calls_[i]), {}, {}, {}};
    if (!item.call) {
      for (const uint32_t slot : step.outputs) {
        if (slot != kNoSlot && is_read_prepared(slot)) item.made.push_back({slot, layouts_[slot].value()});
      }
      return item;
    }
    if (is_view(*item.call)) {
      item.inputs.push_back(step.args[0].slots[0]);
    } else {
      item.inputs.assign(step.inputs.begin(), step.inputs.end());
    }
    for (size_t k = 0; k < step.outputs.size(); ++k) {
      const uint32_t slot = step.outputs[k], returned_as = slot == kNoSlot ? kNoSlot : returned_as_[slot];
      if (returned_as == kNoSlot) {
        item.results.push_back({slot, kIsTensor, item.call->results[k]});
      } else {
        item.results.push_back({returned_as, kIsTensor, layouts_[returned_as].value()});
      }
    }
    return item;
  }

  struct Lifetime {
    int64_t begin, end;  // bytes
    size_t last;         // last item that reads it
  };

  // First-fit allocation in the order in which values are made. A base lives as long as the last reader of its views.
  bool place_all(PreparedRun& made) const {
    std::vector<size_t> last_read(plan_.slot_count());
    for (size_t i = made.items_.size(); i-- > 0;) {
      const Item& item = made.items_[i];
      size_t last = i;
      if (item.call && is_view(*item.call)) {
        for (const Result& view : item.results) last = std::max(last, view.slot == kNoSlot ? i : last_read[view.slot]);
      }
      for (const SlotUse use : item.inputs) last_read[use.slot] = std::max(last_read[use.slot], last);
    }
    std::vector<Lifetime> placed;
    for (size_t i = 0; i < made.items_.size(); ++i) {
      Item& item = made.items_[i];
      if (!item.call || is_view(*item.call)) continue;
      for (Result& result : item.results) {
        if (!is_only_read_prepared(result.slot)) continue;
        const int64_t bytes = (std::max<int64_t>(result.layout.bytes(), 1) + kAligned - 1) / kAligned * kAligned;
        result.place = find_place(placed, bytes, i);
        placed.push_back({result.place, result.place + bytes, std::max(last_read[result.slot], i)});
        made.bytes_ = std::max(made.bytes_, result.place + bytes);
      }
    }
    return made.bytes_ <= kMostPlacedBytes;
  }

  static int64_t find_place(const std::vector<Lifetime>& placed, int64_t bytes, size_t now) {
    std::vector<Lifetime> taken;
    std::copy_if(placed.begin(), placed.end(), std::back_inserter(taken), [&](const Lifetime& other) { return other.last >= now; });
    std::sort(taken.begin(), taken.end(), [](const Lifetime& a, const Lifetime& b) { return a.begin < b.begin; });
    int64_t place = 0;
    for (const Lifetime& other : taken) {
      if (place + bytes <= other.begin) break;
      place = std::max(place, other.end);
    }
    return place;
  }

  const Plan& plan_;
  Slots& slots_;
  const capture::Env& env_;
  std::vector<std::unique_ptr<const PreparedCall>> calls_;  // by step
  std::vector<bool> is_prepared_;                           // by step
  std::vector<std::optional<TensorLayout>> layouts_;        // by slot
  std::vector<bool> is_absorbed_;                           // by step: a view that is made as its base
  std::vector<uint32_t> returned_as_;                       // by slot: the slot of the view that it is made as, or kNoSlot
  std::vector<std::vector<uint32_t>> readers_;              // by slot: steps
  std::vector<std::optional<uint32_t>> makers_;             // by slot: a step; none: an input
  std::vector<bool> is_returned_;                           // by slot
};

std::unique_ptr<const PreparedRun> PreparedRun::record(const Plan& plan, Slots& slots, const capture::Env& env,
                                                       const std::vector<int64_t>& sizes) {
  return Recording(plan, slots, env).run(sizes);
}

// ---- running

bool PreparedRun::fits(const Slots& slots, const std::vector<int64_t>& sizes) const {
  return sizes == sizes_ &&
         std::all_of(inputs_.begin(), inputs_.end(), [&](const InSlot& input) { return input.layout.is_of(slots[input.slot]); });
}

void PreparedRun::run(const Plan& plan, Slots& slots, const capture::Env& env) const {
  const at::Tensor memory = maker_->make_tensor({bytes_}, {1}, at::kByte);
  char* const begin = memory_of(memory);
  c10::SmallVector<char*, 128> address(slots.size());
  c10::SmallVector<char*, 32> addresses;
  c10::SmallVector<at::Tensor, 2> copies;
  for (const InSlot& input : inputs_) address[input.slot] = memory_of(slots[input.slot]);
  for (const Item& item : items_) {
    if (!item.call) {
      run_step(plan.steps()[item.step], slots, env);
      for (const InSlot& made : item.made) {
        const at::Tensor& tensor = slots[made.slot];
        const bool is_as_recorded = made.layout.is_of(tensor);
        if (!is_as_recorded) copies.push_back(with_layout(tensor, made.layout));
        address[made.slot] = memory_of(is_as_recorded ? tensor : copies.back());
      }
      continue;
    }
    if (is_view(*item.call)) {
      // The views' slots own the base, whose own slot may be moved from by steps in between.
      at::Tensor base = take(slots, item.inputs[0]);
      char* const begin_of_base = address[item.inputs[0].slot];
      for (size_t k = 0; k < item.results.size(); ++k) {
        const uint32_t slot = item.results[k].slot;
        if (slot == kNoSlot) continue;
        slots[slot] = k + 1 == item.results.size() ? std::move(base) : base;
        address[slot] = begin_of_base + item.call->views_at[k];
      }
      continue;
    }
    addresses.clear();
    for (const SlotUse use : item.inputs) addresses.push_back(address[use.slot]);
    for (const Result& result : item.results) {
      if (result.place == kIsTensor)
        slots[result.slot] = maker_->make_tensor(result.layout.sizes, result.layout.strides, result.layout.type);
      address[result.slot] = result.place == kIsTensor ? memory_of(slots[result.slot]) : begin + result.place;
      addresses.push_back(address[result.slot]);
    }
    item.call->run(addresses.data(), env);
    for (const SlotUse use : item.inputs) {
      if (use.last) slots[use.slot].reset();
    }
  }
}

// ---- the prepared runs of a plan

void PreparedRuns::set_first_recorded(uint32_t run) { first_recorded.store(run, std::memory_order_relaxed); }

PreparedRuns::~PreparedRuns() {
  for (const auto& recorded : recorded_) delete recorded.load();
}

bool PreparedRuns::run(const Plan& plan, Slots& slots, const capture::Env& env, const std::vector<int64_t>& sizes) const {
  for (const auto& each : recorded_) {
    const PreparedRun* const recorded = each.load(std::memory_order_acquire);
    if (recorded == nullptr) break;
    if (!recorded->fits(slots, sizes)) continue;
    recorded->run(plan, slots, env);
    return true;
  }
  const uint32_t others = others_.fetch_add(1, std::memory_order_relaxed) + 1;
  const uint32_t first = first_recorded.load(std::memory_order_relaxed);
  const bool is_recorded = others % first == 0 && std::has_single_bit(others / first) && others <= kLastRecorded;
  if (!is_recorded || recorded_.back().load() != nullptr || !may_be_prepared(plan)) return false;
  std::unique_ptr<const PreparedRun> made = PreparedRun::record(plan, slots, env, sizes);
  for (auto& each : recorded_) {
    const PreparedRun* none = nullptr;
    if (made == nullptr) break;
    if (each.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) made.release();
  }
  return true;
}

}  // namespace hindcast::codegen
