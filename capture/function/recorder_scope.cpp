#include "capture/function/recorder_scope.h"

#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>

#include <string_view>

namespace hindcast::capture {

RecorderScope::RecorderScope(Recorder& recorder)
    : replays_views_(c10::AutogradState::get_tls_state().get_view_replay_enabled()),
      caches_casts_(at::autocast::is_autocast_cache_enabled()),
      has_device_threads_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      scope_(recorder, Recorder::Autograd::Above) {
  // On a write to a view, autograd then keeps how the view was made, not its current geometry.
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
  // A cached cast would be a stand-in after the trace, and a constant in it.
  at::autocast::set_autocast_cache_enabled(false);
  // A backward, the function's own or that of the trace, stays on this thread: there is no recorder on the threads that the stock engine
  // has for accelerators.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

RecorderScope::~RecorderScope() {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(replays_views_);
  at::autocast::set_autocast_cache_enabled(caches_casts_);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(has_device_threads_);
}

bool is_about_a_stand_in(const std::exception& error) {
  const std::string_view text = error.what();
  return text.find("TracingTensor") != text.npos || text.find("Expected no weakrefs to t") != text.npos ||  // swap_tensors()
         text.find("Cannot access data pointer of Tensor that doesn't have storage") != text.npos ||
         text.find("doesn't correspond to a device") != text.npos;  // Python's new_tensor()
}

}  // namespace hindcast::capture
