#include "engine/call_state.h"

#include "capture/recorder/libtorch_compat.h"
#include "capture/recorder/operator_settings.h"
#include "engine/options/use_options.h"
#include "engine/takeover.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace hindcast::engine {
namespace {

// The dispatcher uses the highest functionality and the highest backend among a call's keys. Dense and CPU are the lowest of each, so
// including them changes no call. LibTorch leaves Dense included after an in-place view of a wrapper subclass.
constexpr c10::DispatchKeySet kLowest(c10::DispatchKey::CPU);

// The key of named tensors, which LibTorch 2.15 has removed.
template <class Key>
constexpr c10::DispatchKeySet key_of_names() {
  if constexpr (requires { Key::Named; }) {
    return c10::DispatchKeySet(Key::Named);
  } else {
    return {};
  }
}

// The included and excluded keys that an ordinary program may have: LibTorch's defaults, autocast on or off, grad mode guards that exclude
// ADInplaceOrView, and nodes that exclude names (they do so around each apply(), and named tensors are not plain anyway).
bool usual_dispatch_keys() {
  const auto tls = c10::impl::tls_local_dispatch_key_set();
  const auto included = tls.included_ - c10::default_included_set;
  auto excluded = tls.excluded_ - c10::autocast_dispatch_keyset - c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) -
                  key_of_names<c10::DispatchKey>();
  if (c10::InferenceMode::is_enabled()) excluded = excluded - c10::autograd_dispatch_keyset;
  return kLowest.has_all(included) && excluded.empty();
}

}  // namespace

bool asks_for_equal_bits() {
  const Options* const options = current_options();
  return (options != nullptr && options->deterministic) || at::globalContext().deterministicAlgorithms();
}

bool is_named(const c10::TensorImpl& tensor) { return tensor.key_set().has_any(key_of_names<c10::DispatchKey>()); }

bool has_usual_dispatch_state() { return usual_dispatch_keys() && !c10::impl::TorchDispatchModeTLS::any_modes_set(); }

std::optional<FallbackReason> fallback_for_thread_state() {
  if (torch::autograd::get_current_graph_task_id() != -1) return FallbackReason::InsideHook;
  if (torch::autograd::AnomalyMode::is_enabled()) return FallbackReason::AnomalyMode;
  if (c10::InferenceMode::is_enabled()) return FallbackReason::InferenceMode;
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr) return FallbackReason::ForwardMode;
  if (!has_usual_dispatch_state()) return FallbackReason::DispatchState;
  // A kernel that writes a gradient only knows the leaf tensor's layout.
  if (!capture::gradients_take_the_leafs_layout()) return FallbackReason::DispatchState;
  return std::nullopt;
}

void append_call_state(cache::KeyBytes& key) {
  const auto& context = at::globalContext();
  const bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  uint64_t switches = 0;
  int bit = 0;
  const auto add = [&](bool on) { switches |= uint64_t{on} << bit++; };
  add(autocast);
  add(autocast && at::autocast::is_autocast_cache_enabled());
  add(context.userEnabledFlashSDP());
  add(context.userEnabledMathSDP());
  add(context.userEnabledMemEfficientSDP());
  cache::append(key, switches);
  cache::append(key, autocast ? at::autocast::get_autocast_dtype(at::kCPU) : at::kFloat);
  cache::append(key, capture::operator_settings());
}

uint64_t accelerator_state(c10::DeviceType accelerator) {
  const auto& context = at::globalContext();
  capture::PackedBits state;
  state.add(capture::accelerator_settings(), capture::kBitsOfAcceleratorSettings);
  const bool autocast = at::autocast::is_autocast_enabled(accelerator);
  state.add(autocast, 1);
  state.add(autocast && at::autocast::is_autocast_cache_enabled(), 1);
  state.add(autocast ? at::autocast::get_autocast_dtype(accelerator) : at::kFloat, 8);
  state.add(context.userEnabledCuDNNSDP(), 1);
  state.add(context.userEnabledFA3SDP(), 1);
  state.add(context.userEnabledOverrideableSDP(), 1);
  state.add(context.allowFP16BF16ReductionMathSDP(), 1);
  static_assert(at::num_sdp_backends <= 5, "the word has no bit left");
  for (const at::SDPBackend backend : at::globalContext().sDPPriorityOrder()) state.add(static_cast<int>(backend), 3);
  state.add(1, 1);  // marks that there is an accelerator
  return state.word();
}

ThreadSettings ThreadSettings::now() {
  using PythonModes = at::impl::PythonTorchFunctionTLS;
  cache::KeyBytes settings;
  append_call_state(settings);
  if (const auto accelerator = at::accelerator::getAccelerator()) {
    cache::append(settings, accelerator_state(*accelerator));
    cache::append(settings, at::autocast::get_autocast_dtype(*accelerator));
  }
  cache::append(settings, c10::GradMode::is_enabled());
  cache::append(settings, c10::InferenceMode::is_enabled());
  cache::append(settings, torch::autograd::AnomalyMode::is_enabled());
  cache::append(settings, at::get_num_threads());
  cache::append(settings, at::autocast::get_autocast_dtype(at::kCPU));
  cache::append(settings, c10::WarningUtils::get_warnAlways());
  cache::append(settings, capture::flushes_denormals());
  ThreadSettings now(settings);
  for (int64_t i = 0; i < PythonModes::stack_len(); ++i) now.modes_.push_back(PythonModes::get_stack_at(i));
  return now;
}

bool ThreadSettings::operator==(const ThreadSettings& other) const {
  // PyTorch pops a mode while it runs, and pushes it back in a new SafePyObject.
  const auto is_same = [](const auto& a, const auto& b) { return a->ptr(&a->pyinterpreter()) == b->ptr(&b->pyinterpreter()); };
  return values_ == other.values_ && std::equal(modes_.begin(), modes_.end(), other.modes_.begin(), other.modes_.end(), is_same);
}

void append_options(cache::KeyBytes& key, const Options& options, bool bitwise) {
  cache::append(key, bitwise && replay_of(options.compiler) != Replay::Eager);  // replay through ATen is always bitwise equal
  cache::append(key, static_cast<int32_t>(options.dynamic));
  cache::append(key, options.collector == Collector::Visitor);
  cache::append(key, options.compiler.identity());
}

}  // namespace hindcast::engine
