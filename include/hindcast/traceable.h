#pragma once
// Tensor hooks whose ATen calls may be inlined into the graph.
//
// A hook is opaque unless it is a TraceableHook: a function without state, so that its type says all that it does. The
// tracer calls it once on stand-ins; a hit does not call it. The types of a node's traceable hooks are part of the key.

#include <ATen/core/Tensor.h>

#include <type_traits>

namespace hindcast {

/// See hindcast::traceable().
template <class F>
struct TraceableHook {
  static_assert(std::is_empty_v<F>, "hindcast::traceable(fn): fn may not capture anything, since it is not called on a hit");
  F fn;
  auto operator()(at::Tensor gradient) const { return fn(std::move(gradient)); }
};

/// Marks a hook for Tensor::register_hook whose ATen calls may be captured instead of calling it every time:
///
///     weight.register_hook(hindcast::traceable([](at::Tensor grad) { return grad.clamp(-1, 1); }));
///
/// `fn` must not capture anything, must depend on nothing but its argument, and must do nothing but ATen calls. One that
/// does what cannot be recorded (a shape that depends on data, `item()`) is called every time, and a warning says so.
template <class F>
TraceableHook<F> traceable(F fn) {
  return {fn};
}

}  // namespace hindcast
