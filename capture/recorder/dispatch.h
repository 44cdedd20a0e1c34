#pragma once
// The current recorder of this thread, and its dispatch state. Only the recorder's own files include this.

#include "capture/recorder/libtorch_compat.h"
#include "capture/recorder/recorder.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hindcast::capture {

// Lazy conjugates and negatives have dispatch keys of their own. In a backward these come after autograd, where composite ops have
// decomposed: matmul gives mm its conjugated operand, and mm has BLAS conjugate it, which rounds differently than a copy. A formula is
// recorded below autograd, where these keys would come first. So they are excluded there, until an op does not decompose.

/// While alive, the two keys are not excluded on this thread.
class LazyOps {
 public:
  LazyOps();

 private:
  c10::impl::ForceDispatchKeyGuard former_;
};

/// While alive, nothing is recorded on this thread, and the stand-ins' dispatch key is excluded.
class Recorder::Pause {
 public:
  Pause();
  ~Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  LazyOps lazy_ops_;
  c10::impl::ExcludeDispatchKeyGuard below_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;  // autograd has run already, or never does
  Recorder* paused_;
};

}  // namespace hindcast::capture
