#include "capture/recorder/watch_tensors.h"

#include "capture/recorder/recorder.h"

#include <ATen/core/VariableHooksInterface.h>

#include <utility>

namespace hindcast::capture {
namespace {

using at::TensorBase;
using at::impl::VariableHooksInterface;

/// Forwards everything to the former hooks. Costs any thread at most one more call.
class WatchingHooks final : public VariableHooksInterface {
 public:
  explicit WatchingHooks(const VariableHooksInterface& former) : former_(former) {}

  void set_data(const TensorBase& self, const TensorBase& data) const override {
    if (Recorder* recorder = Recorder::current()) recorder->refuse_now("assigns to .data of a tensor");
    former_.set_data(self, data);
  }
  void requires_grad_(const TensorBase& self, bool requires_grad) const override {
    Recorder* const recorder = Recorder::current();
    if (recorder != nullptr && self.requires_grad() != requires_grad && recorder->is_given(at::Tensor(self)))
      recorder->refuse_now("calls requires_grad_() of a tensor that it was given");
    former_.requires_grad_(self, requires_grad);
  }
  // Lifts a tensor from outside: otherwise the copy would be a new, unknown tensor in each call.
  TensorBase variable_data(const TensorBase& self) const override {
    Recorder* const recorder = Recorder::current();
    return former_.variable_data(recorder == nullptr ? self : recorder->lifted(at::Tensor(self)));
  }

  TensorBase tensor_data(const TensorBase& self) const override { return former_.tensor_data(self); }
  auto grad_fn(const TensorBase& self) const -> decltype(std::declval<const VariableHooksInterface&>().grad_fn(self)) override {
    return former_.grad_fn(self);
  }
  unsigned _register_hook(const TensorBase& self, std::function<TensorBase(const TensorBase&)> hook) const override {
    return former_._register_hook(self, std::move(hook));
  }
  void remove_hook(const TensorBase& self, unsigned position) const override { former_.remove_hook(self, position); }
  bool is_view(const TensorBase& self) const override { return former_.is_view(self); }
  const TensorBase& base(const TensorBase& self) const override { return former_.base(self); }
  const std::string& name(const TensorBase& self) const override { return former_.name(self); }
  bool is_leaf(const TensorBase& self) const override { return former_.is_leaf(self); }
  int64_t output_nr(const TensorBase& self) const override { return former_.output_nr(self); }
  TensorBase data(const TensorBase& self) const override { return former_.data(self); }
  int64_t _version(const TensorBase& self) const override { return former_._version(self); }
  void retain_grad(const TensorBase& self) const override { former_.retain_grad(self); }
  bool retains_grad(const TensorBase& self) const override { return former_.retains_grad(self); }
  void _backward(const at::Tensor& self, at::TensorList inputs, const std::optional<at::Tensor>& gradient, std::optional<bool> keep_graph,
                 bool create_graph) const override {
    former_._backward(self, inputs, gradient, keep_graph, create_graph);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    former_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const TensorBase& self) const override { return former_.grad_dtype(self); }
  void set_grad_dtype(const TensorBase& self, const std::optional<c10::ScalarType>& dtype) const override {
    former_.set_grad_dtype(self, dtype);
  }

 private:
  const VariableHooksInterface& former_;
};

}  // namespace

// Never destroyed: LibTorch calls its hooks until the process ends.
void watch_tensors() { at::impl::SetVariableHooks(new WatchingHooks(*at::impl::GetVariableHooks())); }

}  // namespace hindcast::capture
