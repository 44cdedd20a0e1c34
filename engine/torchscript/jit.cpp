#include "hindcast/jit.h"

#include "engine/torchscript/module_facts.h"
#include "engine/torchscript/why_eager.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace hindcast {
namespace {

AotOptions named(const torch::jit::Module& module, AotOptions options) {
  if (!options.static_argnums.empty()) {
    throw std::invalid_argument(
        "hindcast: aot_module() of a TorchScript module: AotOptions::static_argnums has entries, but the arguments are one list; use "
        "AotOptions::dynamic = Dynamic::Never for programs whose sizes never become dynamic");
  }
  if (!options.tensor_names) {
    options.tensor_names = [module](const std::vector<at::Tensor>& tensors) { return engine::names_in(module, tensors); };
  }
  return options;
}

detail::ScriptValues values_of(std::vector<c10::IValue> inputs) {
  detail::ScriptValues values;
  values.reserve(inputs.size());
  for (c10::IValue& input : inputs) values.push_back({std::move(input)});
  return values;
}

}  // namespace

torch::jit::Module jit_prepare(torch::jit::Module module) {
  for (const torch::jit::Module& part : module.modules()) {
    for (const torch::jit::Method& method : part.get_methods()) {
      if (auto* function = torch::jit::tryToGraphFunction(method.function())) {
        function->_set_initial_executor_execution_mode(torch::jit::ExecutorExecutionMode::SIMPLE);
      }
    }
  }
  return module;
}

torch::jit::Module jit_load(const std::string& filename, std::optional<c10::Device> device) {
  return jit_prepare(torch::jit::load(filename, device));
}

torch::jit::Module jit_load(std::istream& in, std::optional<c10::Device> device) { return jit_prepare(torch::jit::load(in, device)); }

AotJitModule::AotJitModule(torch::jit::Module module, AotOptions options)
    : itself_{std::make_shared<torch::jit::Module>(jit_prepare(std::move(module)))},
      why_eager_(engine::why_eager(*itself_.module)),
      forward_(itself_, named(*itself_.module, std::move(options))) {}

detail::ScriptValue AotJitModule::Forward::operator()(detail::ScriptValues& inputs) const {
  std::vector<c10::IValue> values;
  values.reserve(inputs.size());
  for (detail::ScriptValue& input : inputs) values.push_back(input.value);
  return {module->forward(std::move(values))};
}

c10::IValue AotJitModule::forward(std::vector<c10::IValue> inputs) const {
  const detail::ScriptValues values = values_of(std::move(inputs));
  if (!why_eager_.empty()) return forward_.call_eagerly(why_eager_, values).value;
  const auto unknown = std::find_if_not(values.begin(), values.end(), [](const auto& each) { return detail::can_visit(each.value); });
  if (unknown != values.end()) {
    const std::string why =
        "A TorchScript module got an argument of type " + unknown->value.type()->repr_str() + ": the call runs eagerly.";
    return forward_.call_eagerly(why, values).value;
  }
  return forward_.call_with([&] { return engine::facts_of(*itself_.module); }, values).value;
}

AotJitModule aot_module(torch::jit::Module module, AotOptions options) { return {std::move(module), std::move(options)}; }

}  // namespace hindcast
