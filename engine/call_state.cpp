#include "engine/call_state.h"

#include "base/check.h"
#include "capture/recorder/libtorch_compat.h"
#include "engine/takeover.h"
#include "engine/use_options.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

namespace hindcast::engine {
namespace {

// The dispatcher takes the highest functionality and the highest backend of all keys of a call. Dense and the CPU are the lowest of each, so
// that to include them changes no call. LibTorch leaves Dense behind where a view in place of a wrapper subclass has been.
constexpr c10::DispatchKeySet kLowest(c10::DispatchKey::CPU);

// The key of tensors with names, which LibTorch 2.15 has no more.
template <class Key>
constexpr c10::DispatchKeySet key_of_names() {
  if constexpr (requires { Key::Named; }) {
    return c10::DispatchKeySet(Key::Named);
  } else {
    return {};
  }
}

// What a thread's included and excluded keys may be in an ordinary program: LibTorch's defaults, autocast on or off, grad mode guards that
// exclude ADInplaceOrView, nodes that exclude names: they do so around each apply(), and tensors with names are not plain.
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
  // By backend: what LibTorch says without one throws where a program uses its older and its newer switches.
  cache::append(key, context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL));
  cache::append(key, context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::CONV));
}

uint64_t accelerator_state(c10::DeviceType accelerator) {
  const auto& context = at::globalContext();
  uint64_t state = 0;
  int bit = 0;
  const auto add = [&](auto value, int bits) {  // of a negative value, none of the bits behind it
    state |= (static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1)) << bit;
    bit += bits;
  };
  const bool autocast = at::autocast::is_autocast_enabled(accelerator);
  add(autocast, 1);
  add(autocast && at::autocast::is_autocast_cache_enabled(), 1);
  add(autocast ? at::autocast::get_autocast_dtype(accelerator) : at::kFloat, 8);
  // What was asked for, each of four: the older switches of TF32 are made of these.
  using at::Float32Backend;
  using at::Float32Op;
  add(context.float32Precision(Float32Backend::GENERIC, Float32Op::ALL), 2);
  for (const Float32Op op : {Float32Op::ALL, Float32Op::CONV, Float32Op::RNN, Float32Op::MATMUL}) {
    add(context.float32Precision(Float32Backend::CUDA, op), 2);
  }
  add(context.userEnabledCuDNN(), 1);
  add(context.benchmarkCuDNN(), 1);
  add(context.deterministicCuDNN(), 1);
  add(context.allowFP16ReductionCuBLAS(), 2);
  add(context.allowBF16ReductionCuBLAS(), 2);
  add(context.allowFP16AccumulationCuBLAS(), 1);
  add(context.userEnabledCuDNNSDP(), 1);
  add(context.userEnabledFA3SDP(), 1);
  add(context.userEnabledOverrideableSDP(), 1);
  add(context.allowFP16BF16ReductionMathSDP(), 1);
  static_assert(at::num_sdp_backends <= 5, "the word has no bit left");
  for (const at::SDPBackend backend : at::globalContext().sDPPriorityOrder()) add(static_cast<int>(backend), 3);
  // Who asks for the library of matrix products settles the default first: there is no question that changes nothing.
  add(at::globalContext().blasPreferredBackend(), 2);
  add(context.linalgPreferredBackend(), 2);
  constexpr int kMostTried = (1 << 12) - 1;  // a library has fewer algorithms
  add(std::clamp(context.benchmarkLimitCuDNN(), 0, kMostTried), 12);
  HC_CHECK(bit <= 63);
  return state | uint64_t{1} << 63;
}

void append_options(cache::KeyBytes& key, const Options& options, bool to_the_bit) {
  cache::append(key, to_the_bit && replay_of(options.compiler) != Replay::Eager);  // replay through ATen does not ask
  cache::append(key, static_cast<int32_t>(options.dynamic));
  cache::append(key, options.collector == Collector::Visitor);
  cache::append(key, options.compiler.identity());
}

}  // namespace hindcast::engine
