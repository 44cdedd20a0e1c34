#include "engine/call_state.h"

#include "capture/recorder/libtorch_compat.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>

namespace hindcast::engine {
namespace {

// What a thread's included and excluded keys may be in an ordinary program: LibTorch's defaults, autocast on or off,
// grad mode guards that exclude ADInplaceOrView.
bool usual_dispatch_keys() {
  const auto tls = c10::impl::tls_local_dispatch_key_set();
  const auto included = tls.included_ - c10::default_included_set;
  auto excluded = tls.excluded_ - c10::autocast_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
  if (c10::InferenceMode::is_enabled()) excluded = excluded - c10::autograd_dispatch_keyset;
  return included.empty() && excluded.empty();
}

}  // namespace

bool has_usual_dispatch_state() { return usual_dispatch_keys() && !c10::impl::TorchDispatchModeTLS::any_modes_set(); }

std::optional<FallbackReason> fallback_for_thread_state() {
  if (torch::autograd::get_current_graph_task_id() != -1) return FallbackReason::InsideHook;
  if (torch::autograd::AnomalyMode::is_enabled()) return FallbackReason::AnomalyMode;
  if (c10::InferenceMode::is_enabled()) return FallbackReason::InferenceMode;
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) return FallbackReason::ForwardMode;
  if (!has_usual_dispatch_state()) return FallbackReason::DispatchState;
  // A kernel that writes a gradient knows only the layout of the leaf.
  if (!capture::gradients_take_the_leafs_layout()) return FallbackReason::DispatchState;
  return std::nullopt;
}

void append_call_state(cache::KeyBytes& key) {
  const auto& context = at::globalContext();
  const auto dtype = c10::get_default_dtype_as_scalartype();
  const bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  uint64_t switches = 0;
  int bit = 0;
  const auto add = [&](bool on) { switches |= uint64_t{on} << bit++; };
  add(autocast);
  add(autocast && at::autocast::is_autocast_cache_enabled());
  add(context.deterministicAlgorithms());
  add(context.deterministicAlgorithmsWarnOnly());
  add(context.deterministicFillUninitializedMemory());
  add(context.userEnabledMkldnn());
  add(context.userEnabledNNPACK());
  add(context.userEnabledFlashSDP());
  add(context.userEnabledMathSDP());
  add(context.userEnabledMemEfficientSDP());
  cache::append(key, switches);
  cache::append(key, dtype);
  cache::append(key, autocast ? at::autocast::get_autocast_dtype(at::kCPU) : at::kFloat);
  cache::append(key, context.float32MatmulPrecision());
}

void append_options(cache::KeyBytes& key, const Options& options, bool to_the_bit) {
  cache::append(key, to_the_bit && replay_of(options.compiler) != Replay::Eager);  // replay through ATen does not ask
  cache::append(key, static_cast<int32_t>(options.dynamic));
  cache::append(key, options.collector == Collector::Visitor);
  cache::append(key, options.compiler.identity());
}

}  // namespace hindcast::engine
