#pragma once
/// hindcast for TorchScript modules: <hindcast/jit.h>. Include <torch/script.h> too. Valid C++17.
///
/// TorchScript's optimizer hides operators from autograd: the backward is a few DifferentiableGraphBackward nodes, whose operators
/// LibTorch's interpreter runs. hindcast compiles only operators that it sees as autograd nodes, so a module must run operator by operator.

#include <hindcast/aot_function.h>
#include <hindcast/detail/script_values.h>

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Module;
}

namespace hindcast {

/// Makes all methods of `module` and of its submodules run operator by operator, on all threads, and returns `module`. Call it before the
/// first forward, and after torch::jit::freeze(): a method that has run keeps its executor. Gradients may differ in rounding, since
/// LibTorch's optimizer has its own derivatives. TorchScript's CUDA fuser is off for these methods.
HINDCAST_API torch::jit::Module jit_prepare(torch::jit::Module module);

/// torch::jit::load() and jit_prepare(). Throws what torch::jit::load() throws.
HINDCAST_API torch::jit::Module jit_load(const std::string& filename, std::optional<c10::Device> device = std::nullopt);
HINDCAST_API torch::jit::Module jit_load(std::istream& in, std::optional<c10::Device> device = std::nullopt);

/// A TorchScript module whose forward and backward run as compiled programs. Called like the module. Copies share the programs.
/// Thread-safe.
///
/// The module itself is unchanged, and each call checks its attributes: numbers, training mode, which tensors. A forward that assigns to
/// attributes, changes its caller's lists, prints, calls Python or a C++ class, or starts tasks runs eagerly in each call, and so does a
/// call with an object as an argument. The log channel `aot` says so.
class HINDCAST_API AotJitModule {
 public:
  AotJitModule(torch::jit::Module module, AotOptions options);

  c10::IValue forward(std::vector<c10::IValue> inputs) const;
  c10::IValue operator()(std::vector<c10::IValue> inputs) const { return forward(std::move(inputs)); }

  AotStats stats() const { return forward_.stats(); }
  /// Forgets what was compiled.
  void reset() { forward_.reset(); }
  const detail::AotCore& core() const { return forward_.core(); }

 private:
  struct Forward {
    std::shared_ptr<torch::jit::Module> module;
    detail::ScriptValue operator()(detail::ScriptValues& inputs) const;
  };

  Forward itself_;
  std::string why_eager_;  // empty: calls are compiled
  AotFunction<Forward> forward_;
};

/// Compiles a TorchScript module: `hindcast::aot_module(module)({positions}).toTensor()`. Prepares the module, as jit_prepare() does.
/// Throws std::invalid_argument for a bad option; AotOptions::static_argnums cannot be given.
HINDCAST_API AotJitModule aot_module(torch::jit::Module module, AotOptions options = {});

}  // namespace hindcast
