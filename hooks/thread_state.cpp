#include "hooks/thread_state.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

namespace hindcast::hooks {

ThreadState::ThreadState() : words_(of_thread()) {}

// Autocast and inference mode are among the dispatch keys.
ThreadState::Words ThreadState::of_thread() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const auto& autograd = c10::AutogradState::get_tls_state();
  using Function = at::impl::PythonTorchFunctionTLS;
  const auto dtype = [](at::DeviceType device) { return static_cast<size_t>(at::autocast::get_autocast_dtype(device)); };
  return {keys.included_.raw_repr(), keys.excluded_.raw_repr(),
          static_cast<size_t>(autograd.get_grad_mode()) | static_cast<size_t>(autograd.get_fw_grad_mode()) << 1 |
              static_cast<size_t>(autograd.get_multithreading_enabled()) << 2 |
              static_cast<size_t>(autograd.get_view_replay_enabled()) << 3,
          static_cast<size_t>(c10::impl::TorchDispatchModeTLS::stack_len()),
          static_cast<size_t>(Function::stack_len()) << 2 | static_cast<size_t>(Function::get_disabled_state()),
          // One mode may have replaced another, as torch.set_default_device() does.
          Function::stack_len() == 0 ? 0 : reinterpret_cast<size_t>(Function::get_stack_at(Function::stack_len() - 1).get()),
          at::SavedTensorDefaultHooks::get_tls_state().stack.size() << 1 | static_cast<size_t>(at::SavedTensorDefaultHooks::is_enabled()),
          dtype(at::kCPU) << 8 | dtype(at::kCUDA)};
}

bool ThreadState::is_changed() const { return of_thread() != words_; }

void ThreadState::restore_if_changed() const {
  if (is_changed()) at::ThreadLocalState::setThreadLocalState(state_);
}

}  // namespace hindcast::hooks
