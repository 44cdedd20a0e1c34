#include "hooks/saved_tensor_hooks.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/util/Exception.h>

namespace hindcast::hooks {
namespace {

thread_local SavedTensorScope* innermost = nullptr;

std::size_t python_depth() { return at::SavedTensorDefaultHooks::get_tls_state().stack.size(); }

}  // namespace

SavedTensorScope::SavedTensorScope(SavedTensorHooks& hooks) : hooks_(hooks), python_depth_(python_depth()), outer_(innermost) {
  // LibTorch would not call our hooks; it throws the same for a Python scope.
  TORCH_CHECK(at::SavedTensorDefaultHooks::is_enabled(), *at::SavedTensorDefaultHooks::get_disabled_error_message());
  innermost = this;
}

SavedTensorScope::~SavedTensorScope() {
  // Usually this is the innermost scope; scopes kept in containers may be destroyed in another order.
  for (SavedTensorScope** link = &innermost; *link != nullptr; link = &(*link)->outer_) {
    if (*link != this) continue;
    *link = outer_;
    return;
  }
}

SavedTensorHooks* current_saved_tensor_hooks() {
  if (innermost == nullptr || python_depth() > innermost->python_depth_) return nullptr;
  return &innermost->hooks_;
}

}  // namespace hindcast::hooks
