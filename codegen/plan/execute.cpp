#include "codegen/plan/execute.h"

#include "hooks/add_gradients.h"

namespace hindcast::codegen {
namespace {

void add_gradients(const Step& step, Slots& slots) {
  at::Tensor sum = take(slots, step.inputs[0]);
  sum = hooks::add_gradients(std::move(sum), take(slots, step.inputs[1]), step.sum_is_view);
  if (step.outputs[0] != kNoSlot) slots[step.outputs[0]] = std::move(sum);
}

}  // namespace

void run_step(const Step& step, Slots& slots, const capture::Env& env) {
  if (step.call_op) {
    step.call_op->run(step, slots, env);
  } else {
    add_gradients(step, slots);
  }
}

uint32_t execute(const Plan& plan, uint32_t first, Slots& slots, const capture::Env& env, StepRunner* special) {
  const std::vector<Step>& steps = plan.steps();
  for (; first < steps.size(); ++first) {
    const Step& step = steps[first];
    if (step.kind == capture::InstrKind::Event) break;
    if (special != nullptr && special->run(step)) continue;
    run_step(step, slots, env);
  }
  return first;
}

}  // namespace hindcast::codegen
