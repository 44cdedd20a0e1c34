// The dispatch key of the recorder: the fallback behind it, and who records on this thread.

#include "capture/recorder/dispatch.h"

#include "base/fork.h"
#include "base/log.h"
#include "capture/recorder/real_arguments.h"
#include "capture/recorder/watch_tensors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

namespace hindcast::capture {
namespace {

thread_local Recorder* current_recorder = nullptr;

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (Recorder* recorder = Recorder::current()) {
    recorder->record(op, stack);
    return;
  }
  // A stand-in outlived its trace: run on what it stands for.
  const c10::impl::ExcludeDispatchKeyGuard below(kRecorderKey);
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) (*stack)[i] = real_tensors((*stack)[i]);
  op.callBoxed(stack);
}

}  // namespace

bool recorder_available() {
  static const bool available = base::first_use([] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kRecorderKey)) {
      HC_LOG(Fallbacks, Warning, "dispatch key {} is taken by something else in this process: every autograd node runs as itself",
             c10::toString(kRecorderKey));
      return false;
    }
    static auto* library = new torch::Library(torch::Library::IMPL, "_", kRecorderKey, __FILE__, __LINE__);
    library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    watch_tensors();
    return true;
  });
  return available;
}

struct Recorder::Scope::Guards {
  explicit Guards(Autograd autograd) {
    if (autograd == Autograd::Done) below_autograd.emplace();
  }
  std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
  c10::impl::IncludeDispatchKeyGuard include{kRecorderKey};
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
