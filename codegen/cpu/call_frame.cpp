#include "codegen/cpu/call_frame.h"

#include "codegen/cpu/cost_model.h"
#include "codegen/cpu/leaf_writes.h"
#include "codegen/cpu/memory/empty_recycled.h"
#include "codegen/cpu/parallel.h"

namespace hindcast::codegen::cpu {

CallFrame::CallFrame(const Group& group, std::shared_ptr<const CpuKernel> kernel)
    : kernel_(std::move(kernel)), group_(group), loads_(group.body.loads.size()), grain_(grain_of(group.body)), scalars_(group.scalars) {}

CallFrame::Call::Call(const Step& step_, Slots& slots_, const capture::Env& env_, const Group& group, const ScalarArgs& scalar_args)
    : step(step_),
      slots(slots_),
      env(env_),
      domain(sizes_of(group.domain, env_)),
      scalars(scalar_args.values(env_)),
      concats(group, domain, env_, empty_strided_recycled, cost_model()) {}

void CallFrame::run_to_leaves(const Step& step, Slots& slots, const capture::Env& env, std::span<LeafRequest> requests) const {
  for (size_t i = 0; i < loads_; ++i) make_plain(slots[step.inputs[i].slot]);
  Call call(step, slots, env, group_, scalars_);
  lay_out(call);
  const LeafWrites leaves(group_, step, slots, requests, empty_strided_recycled, [&](size_t store) { return layout_of(call, store); });
  if (!leaves.empty() && can_write_leaves(call)) call.leaves = &leaves;
  make_results(call, leaves);
  launch(call);
  for (const SlotUse use : step.inputs) {
    if (use.last) slots[use.slot].reset();
  }
  put_results(call, leaves);
}

// Results over all rows are made in the type of the arithmetic.
void CallFrame::make_results(Call& call, const LeafWrites& leaves) const {
  ResultMemory memory(call.step, call.slots, loads_, empty_strided_recycled, cost_model());
  for (size_t i = 0; i < group_.stores.size(); ++i) {
    const BodyStore& store = group_.body.stores[i];
    if (call.leaves != nullptr && store.leaves != 0 && leaves.is_only_added(i)) {
      call.results.emplace_back();
      continue;
    }
    const ResultLayout layout = layout_of(call, i);
    const at::ScalarType type = store.is_over_rows() ? group_.body.compute : layout.type;
    call.results.push_back(may_take_input(call, i) ? memory.make(layout.sizes, layout.strides, type)
                                                   : empty_strided_recycled(layout.sizes, layout.strides, type));
  }
}

void CallFrame::put_results(Call& call, const LeafWrites& leaves) const {
  for (size_t i = 0; i < call.results.size(); ++i) {
    at::Tensor& result = call.results[i];
    const BodyStore& store = group_.body.stores[i];
    if (result.defined() && result.scalar_type() != store.type) result = result.to(store.type);
    if (call.leaves == nullptr || store.leaves == 0) write_to_leaves(leaves, i, result);
    call.slots[call.step.outputs[i]] = std::move(result);
  }
  for (size_t i = 0; i < group_.concats.size(); ++i) call.slots[call.step.outputs[call.results.size() + i]] = call.concats.take(i);
}

size_t CallFrame::footprint() const { return sizeof(*this) + codegen::footprint(group_) + kernel_->footprint_of_one(kernel_.use_count()); }

}  // namespace hindcast::codegen::cpu
