#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hindcast::engine {

// Why a whole call of backward() or grad() runs on the stock engine: enumerator, whether the first occurrence is logged as a warning,
// one sentence for users. Reasons from GradientEdge on are detected by the Python package, before it calls C++.
#define HC_FALLBACK_REASONS(X)                                                                                                 \
  X(CreateGraph, true,                                                                                                         \
    "create_graph was asked for, and the backward is no program: it has hooks or nodes that cannot be looked into, the guard " \
    "looks at each gradient or asks for equal bits, or it could not be traced. The stock engine builds its graph.")            \
  X(AnomalyMode, true, "anomaly mode is on: its checks and messages are those of the stock engine.")                           \
  X(InsideHook, true, "backward() or grad() was called while a backward runs on this thread, from a hook or a node.")          \
  X(DispatchState, true,                                                                                                       \
    "this thread has dispatch state that a replay would not see: a functorch level, a dispatch mode, unusual included "        \
    "or excluded dispatch keys.")                                                                                              \
  X(InferenceMode, true, "inference mode is on.")                                                                              \
  X(ForwardMode, true, "a forward-mode (dual number) level is open.")                                                          \
  X(OtherDevice, true, "a node or a gradient is on a device that hindcast does not take: it takes the CPU and CUDA.")          \
  X(CollectFailed, false,                                                                                                      \
    "a node cannot be read (saved tensors freed or modified in place, nested tensors) or there is nothing to run: the "        \
    "stock engine does what it does, or raises the error at its place.")                                                       \
  X(SavesGradient, false,                                                                                                      \
    "a node has saved memory of a .grad that this backward may add to: the stock engine reads it in its order, and checks "    \
    "at each node whether it was written to.")                                                                                 \
  X(DoesNotPay, true,                                                                                                          \
    "captures do not pay: structures do not come back, or fit none of as many captures as Options::limit allows, or an "       \
    "exception ends each capture. Options::back_off = false captures all; Options::cache_size and cache_bytes say how many "   \
    "structures are kept.")                                                                                                    \
  X(NotFaster, false,                                                                                                          \
    "called from Python, and of few nodes: the stock engine took less time for calls like this one in this process. "          \
    "Options::back_off = false takes all over.")                                                                               \
  X(Disabled, false, "hindcast is switched off (HINDCAST_DISABLE, or the options of the guard).")                              \
  X(GraphTaskEntry, true, "the call came through execute_with_graph_task: distributed autograd keeps its own graph task.")     \
  X(GradientEdge, true, "a root or a wanted input is no tensor but a gradient edge, which no operator takes.")                 \
  X(TensorSubclass, true,                                                                                                      \
    "a root, a wanted input or a gradient is of a subclass of torch.Tensor, whose own code would be asked how to run the "     \
    "operator that hindcast is entered by.")                                                                                   \
  X(NamedTensor, true, "a root, a wanted input or a gradient has named dimensions, which operators of libraries do not take.") \
  X(FunctorchTensor, true,                                                                                                     \
    "a root, a wanted input or a gradient wraps another tensor for torch.func or vmap, as those of is_grads_batched and "      \
    "of the function that torch.func.vjp returned do.")                                                                        \
  X(CompiledAutograd, false, "PyTorch's compiled autograd is on in this thread.")

enum class FallbackReason : uint8_t {
#define HC_ENUMERATOR(enumerator, warns, sentence) enumerator,
  HC_FALLBACK_REASONS(HC_ENUMERATOR)
#undef HC_ENUMERATOR
};

/// The enumerator's name, as stats() shows it.
const char* name(FallbackReason reason);
const char* explain(FallbackReason reason);
std::optional<FallbackReason> find_fallback_reason(std::string_view name);

/// Counts the fallback and logs it: the first of each reason as a warning, if the user did not ask for it, and all others as info.
void record_fallback(FallbackReason reason);
/// Makes the next fallback of each reason count as the first again.
void forget_fallback_warnings();

}  // namespace hindcast::engine
