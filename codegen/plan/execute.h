#pragma once
// Runs the steps of a plan: each reads its arguments from slots and writes its results to slots.

#include "codegen/plan/plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hindcast::codegen {

/// The dispatcher state that a plan's calls run under: autograd and autocast are off, since the graph has their effects already. Grad mode
/// is unchanged: some ops make a workspace for their backward only if it is on.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

/// Runs one step that is not an event. The caller is below autograd (BelowAutograd). Throws what its op throws.
void run_step(const Step& step, Slots& slots, const capture::Env& env);

/// Frees what the step reads for the last time: for a step that ran as a part of something else.
inline void free_last_uses(const Step& step, Slots& slots) {
  for_each_slot(step, [&](SlotUse use) {
    if (use.last) slots[use.slot].reset();
  });
}

/// Replaces the execution of some steps.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Returns false if the step is to run as usual.
  virtual bool run(const Step& step) = 0;
};

/// Runs the steps from `first` to the next event, or to the plan's end; returns the index where it stopped. The caller must be below
/// autograd. `special`, if not nullptr, is tried first for each step. Throws what an op throws.
uint32_t execute(const Plan& plan, uint32_t first, Slots& slots, const capture::Env& env, StepRunner* special = nullptr);
/// The same, but stops before step `last`.
uint32_t execute(const Plan& plan, uint32_t first, uint32_t last, Slots& slots, const capture::Env& env, StepRunner* special = nullptr);

}  // namespace hindcast::codegen
