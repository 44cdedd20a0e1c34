#pragma once
/// Modules compiled ahead of time: <hindcast/aot.h>. Valid C++17.

#include <hindcast/aot_function.h>

#include <memory>
#include <string>
#include <utility>

namespace torch::nn {
class Module;
template <class Contained>
class ModuleHolder;
}  // namespace torch::nn

namespace hindcast {

namespace detail {
/// The visible state that a module's forward depends on, besides the contents of tensors: submodules, their classes, whether each is in
/// training mode, and which tensors are registered.
HINDCAST_API std::string facts_of(const torch::nn::Module& module);
/// Returns for each tensor its name as a parameter or buffer of the module; empty if it is neither.
HINDCAST_API std::vector<std::string> names_in(const torch::nn::Module& module, const std::vector<at::Tensor>& tensors);
}  // namespace detail

/// A module whose forward and backward run as compiled programs. Members that are not registered submodules, parameters or buffers are
/// invisible: a number that changes, a tensor that is assigned to `weight` itself. Call reset() after such a change, or use
/// AotOptions::check_every.
///
/// The module itself is unchanged: train it, save it, load it, change its dtype. Its parameters and buffers are those of the original, and
/// a batch norm's running statistics are updated as in the original.
template <class Module>
class AotModule {
 public:
  AotModule(std::shared_ptr<Module> module, AotOptions options)
      : module_(std::move(module)), forward_(Forward{module_}, named(module_, std::move(options))) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    return forward_.call_with([&] { return detail::facts_of(*module_); }, args...);
  }
  template <class... Args>
  auto forward(const Args&... args) const {
    return (*this)(args...);
  }
  Module* operator->() const { return module_.get(); }
  Module& operator*() const { return *module_; }
  const std::shared_ptr<Module>& ptr() const { return module_; }

  AotStats stats() const { return forward_.stats(); }
  void reset() { forward_.reset(); }
  const detail::AotCore& core() const { return forward_.core(); }

 private:
  struct Forward {
    std::shared_ptr<Module> module;
    template <class... Args>
    auto operator()(Args&... args) const {
      return module->forward(args...);
    }
  };

  static AotOptions named(const std::shared_ptr<Module>& module, AotOptions options) {
    if (!options.tensor_names) {
      options.tensor_names = [module](const std::vector<at::Tensor>& tensors) { return detail::names_in(*module, tensors); };
    }
    return options;
  }

  std::shared_ptr<Module> module_;
  AotFunction<Forward> forward_;
};

/// Compiles a module as aot_function() compiles a function: `hindcast::aot_module(net)(images)`. Takes a module or its holder.
template <class Module>
AotModule<Module> aot_module(std::shared_ptr<Module> module, AotOptions options = {}) {
  return {std::move(module), std::move(options)};
}
template <class Holder, class Module = typename Holder::ContainedType>
AotModule<Module> aot_module(const Holder& module, AotOptions options = {}) {
  return {module.ptr(), std::move(options)};
}

/// aot_module() with partition::min_cut and fusing compilers.
template <class Module, class = std::enable_if_t<IsModule<Module>::value>>
auto memory_efficient_fusion(const Module& module) {
  AotOptions options;
  options.partition = partition::min_cut;
  return aot_module(module, std::move(options));
}

}  // namespace hindcast
