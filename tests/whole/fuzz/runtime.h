#pragma once
// The words that a fuzzed program is written in: its log, its leaves, root gradients, hooks and custom functions.
//
// The interpreter calls them, and print_cpp pastes this very file at the head of each reproducer, so that the two cannot
// drift apart. Hence it depends on LibTorch and on hindcast's public header only, and everything in it is inline.

#include <hindcast/hindcast.h>
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace hindcast::tests::fuzz {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- what a program can observe ----

/// FNV-1a over the values in logical order. Every NaN counts as the same one: which operand's payload survives an addition is
/// not what is compared.
template <class T>
uint64_t hash_values(const at::Tensor& contiguous) {
  uint64_t hash = 14695981039346656037ULL;
  const T* values = contiguous.const_data_ptr<T>();
  for (int64_t i = 0; i < contiguous.numel(); ++i) {
    T value = values[i];
    if (value != value) value = std::numeric_limits<T>::quiet_NaN();
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    for (size_t k = 0; k < sizeof(T); ++k) hash = (hash ^ bytes[k]) * 1099511628211ULL;
  }
  return hash;
}

/// A tensor to the bit, and its first values for people.
inline std::string describe(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (!tensor.defined()) return "undefined";
  std::ostringstream out;
  out << tensor.scalar_type() << tensor.sizes() << " strides";
  for (int64_t d = 0; d < tensor.dim(); ++d) out << ' ' << tensor.stride(d);
  out << (tensor.requires_grad() ? " requires_grad" : "") << (tensor.is_conj() ? " conj" : "");
  at::Tensor values = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg();
  if (values._is_zerotensor()) values = at::zeros(values.sizes(), values.scalar_type());  // LibTorch's zeros without memory
  if (values.is_complex()) values = at::view_as_real(values);
  values = values.contiguous();
  uint64_t hash = 0;
  switch (values.scalar_type()) {
    case at::kFloat:
      hash = hash_values<float>(values);
      break;
    case at::kDouble:
      hash = hash_values<double>(values);
      break;
    case at::kBFloat16:
      hash = hash_values<at::BFloat16>(values);
      break;
    default:
      out << " of a dtype that is not compared";
      break;
  }
  out << " #" << std::hex << hash << std::dec;
  const at::Tensor shown = values.reshape({-1}).slice(0, 0, 4).to(at::kDouble);
  for (int64_t i = 0; i < shown.numel(); ++i) {
    const double value = shown.const_data_ptr<double>()[i];
    out << ' ' << (value != value ? std::numeric_limits<double>::quiet_NaN() : value);  // no -nan
  }
  return out.str();
}

/// The events of one run, in order.
class Log {
 public:
  void note(std::string event) { events_.push_back(std::move(event)), tensors_.emplace_back(); }
  void show(const std::string& name, const at::Tensor& tensor) {
    note(name + " = " + describe(tensor));
    const at::NoGradGuard no_grad;
    if (tensor.defined()) tensors_.back() = tensor.detach().clone();
  }
  void show(const std::string& name, const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) show(name + "[" + std::to_string(i) + "]", tensors[i]);
  }
  /// LibTorch warns when somebody asks for a gradient that nobody keeps.
  void show_grad(const std::string& name, const at::Tensor& tensor) {
    if (tensor.is_leaf() || tensor.retains_grad()) show(name + ".grad", tensor.grad());
  }

  /// Runs `action` and notes how it ended. Returns whether it came to its end.
  template <class Action>
  bool attempt(const std::string& name, Action&& action) {
    try {
      action();
      return true;
    } catch (const c10::Error& error) {
      note(name + " threw: " + error.what_without_backtrace());
    } catch (const std::exception& error) {
      note(name + " threw: " + error.what());
    }
    return false;
  }

  const std::vector<std::string>& events() const { return events_; }
  /// By event: what it shows; undefined where that is no tensor.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::string> events_;
  std::vector<at::Tensor> tensors_;
};

/// The first event in which the logs differ, with what came before it; empty if they are equal.
inline std::string first_difference(const std::vector<std::string>& stock, const std::vector<std::string>& hindcast) {
  size_t at = 0;
  while (at < stock.size() && at < hindcast.size() && stock[at] == hindcast[at]) ++at;
  if (at == stock.size() && at == hindcast.size()) return "";
  std::string text;
  for (size_t i = at < 5 ? 0 : at - 5; i < at; ++i) text += "  both:     " + stock[i] + "\n";
  text += "  stock:    " + (at < stock.size() ? stock[at] : "(the log ends here)") + "\n";
  text += "  hindcast: " + (at < hindcast.size() ? hindcast[at] : "(the log ends here)") + "\n";
  return text;
}

/// One round of a program: the sizes and the scalars that change while it stays the same.
struct Step {
  int number = 0;
  int64_t batch = 1;
  double scalar = 1;
};

// ---- leaves and gradients ----

/// Where leaves and root gradients lie.
inline at::Device device_of_leaves = at::kCPU;

enum class Layout { Contiguous, Transposed, Sliced, Expanded };

/// The same values (Expanded: repeats of the first) in another memory layout.
inline at::Tensor in_layout(const at::Tensor& tensor, Layout layout) {
  if (tensor.dim() == 0 || tensor.numel() == 0) return tensor;
  switch (layout) {
    case Layout::Transposed:
      return tensor.transpose(0, -1).contiguous().transpose(0, -1);
    case Layout::Sliced:
      return at::stack({tensor, tensor}, -1).select(-1, 0);
    case Layout::Expanded:
      return tensor.narrow(0, 0, 1).expand(tensor.sizes());
    case Layout::Contiguous:
      break;
  }
  return tensor.contiguous();
}

inline at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype, Layout layout, bool requires_grad) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = (at::randn(sizes, dtype) * 0.5).to(device_of_leaves);
  return in_layout(values, layout).detach().set_requires_grad(requires_grad);
}

/// A root gradient for `root`.
inline at::Tensor gradient(const at::Tensor& root, Layout layout) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = (at::arange(root.numel(), at::kFloat).remainder(5) - 1.5) * 0.5;
  return in_layout(values.reshape(root.sizes()).to(root.device(), root.scalar_type()), layout);
}

/// torch::optim's two ways.
inline void zero_grad(at::Tensor& leaf, bool set_to_none) {
  if (!leaf.grad().defined()) return;
  if (set_to_none) {
    leaf.mutable_grad() = at::Tensor();
  } else {
    leaf.mutable_grad().detach_().zero_();
  }
}

inline void descend(at::Tensor& leaf) {
  const at::NoGradGuard no_grad;
  if (leaf.grad().defined()) leaf.sub_(leaf.grad(), 0.01);
}

/// A backward through a backward: that of the sum of the squares of gradients.
inline void backward_of_squared_gradients(const variable_list& roots, const variable_list& gradients, const variable_list& inputs) {
  at::Tensor sum;
  for (const auto& grad : torch::autograd::grad(roots, inputs, gradients, true, /*create_graph=*/true, /*allow_unused=*/true)) {
    if (!grad.defined() || !grad.requires_grad()) continue;
    const at::Tensor square = grad.is_complex() ? at::real(grad * grad.conj()).sum() : (grad * grad).sum();
    sum = sum.defined() ? sum + square : square;
  }
  if (sum.defined()) sum.backward({}, /*retain_graph=*/true);
}

class Autocast {
 public:
  explicit Autocast(bool enabled) : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::increment_nesting();
  }
  ~Autocast() { end(); }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  void end() {
    if (std::exchange(ended_, true)) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before_);
  }

 private:
  bool before_;
  bool ended_ = false;
};

// ---- hooks ----

struct PreHook : torch::autograd::FunctionPreHook {
  explicit PreHook(std::function<variable_list(const variable_list&)> fn) : fn(std::move(fn)) {}
  variable_list operator()(const variable_list& grads) override { return fn(grads); }
  std::function<variable_list(const variable_list&)> fn;
};

struct PostHook : torch::autograd::FunctionPostHook {
  explicit PostHook(std::function<variable_list(const variable_list&, const variable_list&)> fn) : fn(std::move(fn)) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override { return fn(outputs, inputs); }
  std::function<variable_list(const variable_list&, const variable_list&)> fn;
};

/// A hook that only looks.
inline void watch(Log& log, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.requires_grad()) return;
  tensor.register_hook([&log, name](const at::Tensor& grad) { log.show("hook of " + name, grad); });
}

/// A hook that returns another gradient: other values and another layout.
inline void replace(Log& log, const std::string& name, const at::Tensor& tensor, Layout layout) {
  if (!tensor.requires_grad()) return;
  tensor.register_hook([&log, name, layout](const at::Tensor& grad) {
    log.show("replacing hook of " + name, grad);
    return grad.defined() ? in_layout(grad * 2, layout) : grad;
  });
}

inline void clamp_traceably(const at::Tensor& tensor) {
  if (!tensor.requires_grad() || tensor.is_complex()) return;
  tensor.register_hook(hindcast::traceable([](at::Tensor grad) { return grad.defined() ? grad.clamp(-0.5, 0.5) : grad; }));
}

inline void retain(const at::Tensor& tensor) {
  if (tensor.requires_grad()) tensor.retain_grad();
}

inline void watch_before_node(Log& log, const std::string& name, const at::Tensor& tensor, bool replace) {
  if (!tensor.requires_grad()) return;
  torch::autograd::impl::gradient_edge(tensor).function->add_pre_hook(std::make_unique<PreHook>([&log, name, replace](variable_list grads) {
    log.show("pre hook at the node of " + name, grads);
    for (auto& grad : grads) {
      if (replace && grad.defined()) grad = grad * 0.5;
    }
    return grads;
  }));
}

inline void watch_after_node(Log& log, const std::string& name, const at::Tensor& tensor, bool replace) {
  if (!tensor.requires_grad()) return;
  torch::autograd::impl::gradient_edge(tensor).function->add_post_hook(
      std::make_unique<PostHook>([&log, name, replace](variable_list outputs, const variable_list& inputs) {
        log.show("inputs, post hook at the node of " + name, inputs);
        log.show("outputs, post hook at the node of " + name, outputs);
        for (auto& grad : outputs) {
          if (replace && grad.defined()) grad = grad.neg();
        }
        return outputs;
      }));
}

inline void watch_accumulation(Log& log, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.requires_grad() || !tensor.is_leaf()) return;
  hindcast::on_grad_ready(tensor, [&log, name](const at::Tensor& ready) { log.show("ready: " + name, ready.grad()); });
}

// ---- custom functions ----

/// Decides by a value, which cannot be captured.
struct Opaque : torch::autograd::Function<Opaque> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double factor) {
    ctx->save_for_backward({x});
    ctx->saved_data["factor"] = factor;
    return x * factor;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const bool positive = x.numel() > 0 && at::real(x).sum().item<double>() > 0;
    return {positive ? grads[0] * ctx->saved_data["factor"].toDouble() : grads[0].neg(), at::Tensor()};
  }
};

struct Traceable : torch::autograd::Function<Traceable> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double factor) {
    ctx->save_for_backward({x});
    ctx->saved_data["factor"] = factor;
    return x.sin() * factor;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    return {grads[0] * x.cos() * ctx->saved_data["factor"].toDouble(), at::Tensor()};
  }
};

/// Two outputs, of which the unused one has no gradient.
struct TwoOutputs : torch::autograd::Function<TwoOutputs> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({x});
    return {x.sin(), x * 2};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    at::Tensor result;
    if (grads[0].defined()) result = grads[0] * x.cos();
    if (grads[1].defined()) result = result.defined() ? result + grads[1] * 2 : grads[1] * 2;
    return {result};
  }
};

}  // namespace hindcast::tests::fuzz
