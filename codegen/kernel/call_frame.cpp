#include "codegen/kernel/call_frame.h"

namespace hindcast::codegen {

CallFrame::CallFrame(const Group& group, const ResultMaker& maker)
    : group_(group), loads_(group.body.loads.size()), scalars_(group), maker_(maker) {}

CallFrame::Call::Call(const Step& step_, Slots& slots_, const capture::Env& env_, const CallFrame& frame)
    : step(step_),
      slots(slots_),
      env(env_),
      domain(sizes_of(frame.group_.domain, env_)),
      scalars(frame.scalars_.values(env_, step_, slots_)),
      concats(
          frame.group_, domain, env_,
          [&](at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
            return frame.maker_.make_new(sizes, strides, type, frame.group_.device);
          },
          frame.maker_.costs()) {}

void CallFrame::run_to_leaves(const Step& step, Slots& slots, const capture::Env& env, std::span<LeafRequest> requests) const {
  for (size_t i = 0; i < loads_; ++i) make_plain(slots[step.inputs[i].slot]);
  Call call(step, slots, env, *this);
  lay_out(call);
  const auto make = [&](at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
    return maker_.make_new(sizes, strides, type, group_.device);
  };
  const LeafWrites leaves(group_, step, slots, requests, make, [&](size_t store) { return layout_of(call, store); });
  if (!leaves.empty() && can_write_leaves(call)) call.leaves = &leaves;
  make_results(call, leaves);
  launch(call);
  for (const SlotUse use : step.inputs) {
    if (use.last) slots[use.slot].reset();
  }
  put_results(call, leaves);
}

bool CallFrame::may_be_prepared(const Step& step, const Slots& slots) const {
  if (scalars_.are_in_tensors()) return false;
  const bool are_made_as_stored = std::all_of(group_.body.stores.begin(), group_.body.stores.end(),
                                              [&](const BodyStore& store) { return maker_.made_as(group_.body, store) == store.type; });
  return are_made_as_stored && std::all_of(step.inputs.begin(), step.inputs.end(), [&](SlotUse use) {
           return use.slot != kNoSlot && TensorLayout::of(slots[use.slot]).is_of(slots[use.slot]);
         });
}

std::vector<TensorLayout> CallFrame::layouts_of_results(const Call& call) const {
  std::vector<TensorLayout> layouts;
  for (size_t i = 0; i < group_.stores.size(); ++i) {
    const ResultLayout layout = layout_of(call, i);
    layouts.push_back({at::DimVector(layout.sizes.begin(), layout.sizes.end()), at::DimVector(layout.strides.begin(), layout.strides.end()),
                       layout.type});
  }
  for (size_t i = 0; i < group_.concats.size(); ++i) layouts.push_back(call.concats.layout_of(i));
  return layouts;
}

bool CallFrame::may_be_prepared(const Call& call) const {
  if (call.is_empty() || !call.concats.are_in_place()) return false;
  const std::vector<TensorLayout> layouts = layouts_of_results(call);
  return std::none_of(layouts.begin(), layouts.end(),
                      [&](const TensorLayout& layout) { return maker_.costs().is_memory_worth_taking(layout.bytes()); });
}

void CallFrame::make_unread_results(Call& call) const {
  for (size_t i = 0; i < group_.stores.size(); ++i) {
    const ResultLayout layout = layout_of(call, i);
    call.results.push_back(maker_.make_new(layout.sizes, layout.strides, layout.type, group_.device));
  }
}

void CallFrame::make_results(Call& call, const LeafWrites& leaves) const {
  const auto make = [&](at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
    return maker_.make_new(sizes, strides, type, group_.device);
  };
  ResultMemory memory(call.step, call.slots, loads_, make, maker_.costs());
  for (size_t i = 0; i < group_.stores.size(); ++i) {
    const BodyStore& store = group_.body.stores[i];
    if (call.leaves != nullptr && store.leaves != 0 && leaves.is_only_added(i)) {
      call.results.emplace_back();
      continue;
    }
    const bool may_add = i < 64 && store.leaves == 0 && can_add_to_leaf(i);
    if (const LeafWrites::Write* const only = may_add ? leaves.only_write_of(i) : nullptr; only != nullptr) {
      const ResultLayout layout = layout_of(call, i);
      call.results.push_back(alias_of(only->gradient, layout.sizes, layout.strides));
      call.added |= uint64_t{1} << i;
      continue;
    }
    const ResultLayout layout = layout_of(call, i);
    const at::ScalarType type = maker_.made_as(group_.body, store);
    call.results.push_back(may_take_input(call, i) ? memory.make(layout.sizes, layout.strides, type)
                                                   : make(layout.sizes, layout.strides, type));
  }
}

void CallFrame::put_results(Call& call, const LeafWrites& leaves) const {
  for (size_t i = 0; i < call.results.size(); ++i) {
    at::Tensor& result = call.results[i];
    const BodyStore& store = group_.body.stores[i];
    if (call.is_added(i)) {  // an unread tensor, for steps between here and the leaf, such as views
      call.slots[call.step.outputs[i]] = std::move(result);
      continue;
    }
    if (result.defined() && result.scalar_type() != store.type) result = result.to(store.type);
    if (call.leaves == nullptr || store.leaves == 0) {
      for (const LeafWrites::Write& write : leaves.writes()) {
        if (write.store == i && result.numel() != 0) maker_.write_to_leaf(write, result);
      }
    }
    call.slots[call.step.outputs[i]] = std::move(result);
  }
  for (size_t i = 0; i < group_.concats.size(); ++i) call.slots[call.step.outputs[call.results.size() + i]] = call.concats.take(i);
}

}  // namespace hindcast::codegen
