#pragma once
// Runs the calls of a plan, from slot to slot.

#include "codegen/plan/plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hindcast::codegen {

/// What calls of a plan run under: autograd has been done, and autocast's casts were recorded. Grad mode stays: some ops make a workspace
/// for their backward only where it is on.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

/// One step that is no event, below autograd. Throws what its op throws.
void run_step(const Step& step, Slots& slots, const capture::Env& env);

/// Runs some steps in another way.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// False: the step is run as it stands.
  virtual bool run(const Step& step) = 0;
};

/// Runs the steps from `first` to the next event, or to the plan's end; returns where it stopped. Below autograd, which is the caller's
/// affair. `special`, where there is one, is asked before each step. Throws what an op throws.
uint32_t execute(const Plan& plan, uint32_t first, Slots& slots, const capture::Env& env, StepRunner* special = nullptr);
/// The same up to `last`, not included, at most.
uint32_t execute(const Plan& plan, uint32_t first, uint32_t last, Slots& slots, const capture::Env& env, StepRunner* special = nullptr);

}  // namespace hindcast::codegen
