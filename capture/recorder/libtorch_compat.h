#pragma once
// The differences between the LibTorch releases that hindcast compiles against, in one place; all other code is written for 2.11. An
// unlisted release is refused: parts of autograd that hindcast uses change without a word in LibTorch's notes.

#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKey.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/headeronly/version.h>

#include <memory>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11 || TORCH_VERSION_MINOR > 15
#error "hindcast is built for LibTorch 2.11 to 2.15; see docs/libtorch-releases.md for what to check before another release"
#endif

// From 2.14 on the engine returns hooks for each new node: one more virtual function for an engine that replaces another.
#define HINDCAST_ENGINE_HAS_NODE_CREATION_HOOKS (TORCH_VERSION_MINOR >= 14)
// From 2.13 on a thread-local switch decides whether AccumulateGrad gives a gradient the layout of its leaf.
#define HINDCAST_GRADIENT_LAYOUT_IS_A_SWITCH (TORCH_VERSION_MINOR >= 13)

namespace hindcast::capture {

// From 2.13 on Python's grad() says which input was not used.
inline constexpr bool kUnusedInputsHaveAnIndex = TORCH_VERSION_MINOR >= 13;

// Unused by all these releases. From 2.13 on it is meant for LibTorch's own C++ FakeTensor, for which 2.15 has no fallback yet;
// recorder_available() checks at run time.
inline constexpr c10::DispatchKey kRecorderKey = c10::DispatchKey::Fake;

/// The owning pointer of a node: std::shared_ptr<Node> up to 2.12, c10::intrusive_ptr<Node> from 2.13 on.
using NodePtr = decltype(torch::autograd::Edge::function);

#if TORCH_VERSION_MINOR < 13
using WeakNodePtr = std::weak_ptr<torch::autograd::Node>;

/// Takes ownership of a node that `new` has just made.
template <class T>
std::shared_ptr<T> own_node(T* node) {
  return std::shared_ptr<T>(node, torch::autograd::deleteNode);
}
#else
using WeakNodePtr = c10::weak_intrusive_ptr<torch::autograd::Node>;

template <class T>
c10::intrusive_ptr<T> own_node(T* node) {
  return c10::intrusive_ptr<T>::unsafe_steal_from_new(node);
}
#endif

/// After 2.11, this node's formula takes another path for a symbolic exponent, which rounds differently. So its exponent stays a constant
/// of the program.
inline bool rounds_differently_for_symbols(const torch::autograd::Node& node) {
  return TORCH_VERSION_MINOR > 11 && node.name() == "PowBackward0";
}

inline bool gradients_take_the_leafs_layout() {
#if HINDCAST_GRADIENT_LAYOUT_IS_A_SWITCH
  return c10::AutogradState::get_tls_state().get_grad_layout_enforcement_enabled();
#else
  return true;
#endif
}

}  // namespace hindcast::capture
