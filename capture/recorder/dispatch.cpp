// The dispatch key of the recorder: its fallback, and the current recorder of this thread.

#include "capture/recorder/dispatch.h"

#include "base/fork.h"
#include "base/log.h"
#include "capture/graph/users_op.h"
#include "capture/recorder/dispatch_modes.h"
#include "capture/recorder/real_arguments.h"
#include "capture/recorder/symbolic_composites.h"
#include "capture/recorder/watch_tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <atomic>

namespace hindcast::capture {
namespace {

thread_local Recorder* current_recorder = nullptr;
std::atomic<bool> has_symbolic_composites = false;

constexpr c10::DispatchKeySet kLazy({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

bool is_lazy(const at::Tensor& tensor) { return tensor.key_set().has_any(kLazy); }

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (Recorder* recorder = Recorder::current()) {
    if (has_foreign_symbols(op, *stack)) return Recorder::unrecorded([&] { op.callBoxed(stack); });
    if (is_in_dispatch_mode()) return recorder->record_in_mode(op, stack);
    const bool are_left_out = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Conjugate);
    if (are_left_out && !traits_of(op).composite && any_tensor(op, *stack, is_lazy)) {
      const LazyOps in_their_places;
      return op.callBoxed(stack);
    }
    recorder->record(op, stack);
    return;
  }
  // A stand-in outlived its trace: run on the real tensors.
  const c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) (*stack)[i] = real_tensors((*stack)[i]);
  op.callBoxed(stack);
}

}  // namespace

bool recorder_available() {
  static constinit base::MadeOnce<const bool> available;
  return available.by([] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kRecorderKey)) {
      HC_LOG(Fallbacks, Warning, "dispatch key {} is taken by something else in this process: every autograd node runs as itself",
             c10::toString(kRecorderKey));
      return false;
    }
    auto* library = new torch::Library(torch::Library::IMPL, "_", kRecorderKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    has_symbolic_composites.store(register_symbolic_composites());
    watch_tensors();
    return true;
  });
}

LazyOps::LazyOps() {
  for (const c10::DispatchKey key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative})
    c10::impl::tls_set_dispatch_key_excluded(key, false);
}

struct Recorder::Scope::Guards {
  explicit Guards(Autograd autograd) {
    if (autograd == Autograd::Above) {
      if (has_symbolic_composites.load()) symbolic_composites.emplace(kSymbolicCompositesKey);
      return;
    }
    below_autograd.emplace();
    without_lazy_ops.emplace(kLazy);
  }
  c10::impl::IncludeDispatchKeyGuard include{kRecorderKey};  // first: a guard restores the keys of when it was made
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> without_lazy_ops;
  std::optional<c10::impl::IncludeDispatchKeyGuard> symbolic_composites;
};

Recorder::Scope::Scope(Recorder& recorder, Autograd autograd)
    : guards_(std::make_unique<Guards>(autograd)), previous_(std::exchange(current_recorder, &recorder)) {}
Recorder::Scope::~Scope() { current_recorder = previous_; }

Recorder* Recorder::current() { return current_recorder; }

Recorder::Pause::Pause() : below_(kRecorderKey), paused_(std::exchange(current_recorder, nullptr)) {}
Recorder::Pause::~Pause() { current_recorder = paused_; }

void Recorder::unrecorded(c10::function_ref<void()> work) {
  const Pause pause;
  work();
}

}  // namespace hindcast::capture
