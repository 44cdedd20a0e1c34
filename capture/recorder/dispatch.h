#pragma once
// Who records on this thread. Only the recorder's own files include this.

#include "capture/recorder/libtorch_compat.h"
#include "capture/recorder/recorder.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hindcast::capture {

/// While alive, nothing is recorded on this thread, and stand-ins' key is left out.
class Recorder::Pause {
 public:
  Pause();
  ~Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard below_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;  // it has been at work, or never is
  Recorder* paused_;
};

}  // namespace hindcast::capture
