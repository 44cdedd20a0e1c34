#include "codegen/plan/execute.h"

#include "hooks/add_gradients.h"

namespace hindcast::codegen {
namespace {

void add_gradients(const Step& step, Slots& slots) {
  at::Tensor sum = take(slots, step.inputs[0]);
  sum = hooks::add_gradients(std::move(sum), take(slots, step.inputs[1]), step.sum_is_view);
  if (step.outputs[0] != kNoSlot) slots[step.outputs[0]] = std::move(sum);
}

// Runs a view op whose result shares the version counter of its base. The base may be moved into the view.
void run_shown_view(const Step& step, Slots& slots, const capture::Env& env) {
  const at::Tensor& viewed = slots[step.args[0].slots[0].slot];
  if (!viewed.defined() || !viewed.has_storage() || viewed.is_inference()) return step.call_op->run(step, slots, env);
  const c10::VariableVersion version = viewed.unsafeGetTensorImpl()->version_counter();
  const c10::Storage memory = viewed.storage();
  step.call_op->run(step, slots, env);
  for (const uint32_t slot : step.outputs) {
    if (slot == kNoSlot || !slots[slot].defined() || !slots[slot].has_storage() || slots[slot].is_inference()) continue;
    if (slots[slot].storage().is_alias_of(memory)) slots[slot].unsafeGetTensorImpl()->set_version_counter(version);
  }
}

}  // namespace

void run_step(const Step& step, Slots& slots, const capture::Env& env) {
  if (step.shares_version) {
    run_shown_view(step, slots, env);
  } else if (step.call_op) {
    step.call_op->run(step, slots, env);
  } else {
    add_gradients(step, slots);
  }
}

uint32_t execute(const Plan& plan, uint32_t first, Slots& slots, const capture::Env& env, StepRunner* special) {
  return execute(plan, first, static_cast<uint32_t>(plan.steps().size()), slots, env, special);
}

uint32_t execute(const Plan& plan, uint32_t first, uint32_t last, Slots& slots, const capture::Env& env, StepRunner* special) {
  const std::vector<Step>& steps = plan.steps();
  for (; first < last; ++first) {
    const Step& step = steps[first];
    if (step.kind == capture::InstrKind::Event) break;
    if (special != nullptr && special->run(step)) continue;
    run_step(step, slots, env);
  }
  return first;
}

}  // namespace hindcast::codegen
