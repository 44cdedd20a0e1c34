#include "capture/backward/visitor.h"

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <bit>
#include <string_view>
#include <typeinfo>

namespace hindcast::capture {

using namespace torch::dynamo::autograd;

bool is_cpp_function(const torch::autograd::Node& node) {
  return std::string_view(typeid(node).name()).starts_with("N5torch8autograd7CppNodeI");
}

const char* why_class_is_refused(const std::exception& error) {
  const std::string_view text = error.what();  // from an assertion of LibTorch's CppNode
  if (text.starts_with("ctx_.dirty_inputs_.empty()")) return "custom Function that calls mark_dirty(), which LibTorch's visitor refuses";
  if (text.starts_with("ctx_.non_differentiable_.empty()"))
    return "custom Function that calls mark_non_differentiable(), which LibTorch's visitor refuses";
  return nullptr;
}

const char* Visitor::collect(const torch::autograd::Node& node, uint32_t call, Collected& out, std::vector<FactOrigin>* origins,
                             uint32_t first_field) {
  AutogradCompilerCall compiler(SizeInput::STATIC);
  torch::dynamo::autograd::NodeCall node_call(0, const_cast<torch::autograd::Node&>(node).getptr());
  CompiledNodeArgs args(compiler, node_call);
  try {
    node.compiled_args(args);
  } catch (const std::exception& error) {
    const char* reason = why_class_is_refused(error);
    return reason != nullptr ? reason : kNotVisited;  // calling it as itself raises the right error, if there is one
  }
  if (!compiler.sv_to_hooks.empty()) return "saved tensor with hooks";
  const CacheKey key = args.key();
  cache::append_size(out.key, key.key_size);
  cache::append_bytes(out.key, key.key, key.key_size);
  uint32_t field = first_field;
  const auto note = [&](FactKind kind) {
    if (origins) origins->push_back({kind, call, field, 0});
  };
  cache::append_size(out.key, compiler.lifted_ivalue_args.args.size());
  for (const auto& lifted : compiler.lifted_ivalue_args.args) {
    const at::IValue& value = *lifted.actual_ptr;
    cache::append(out.key, value.isDouble());
    out.facts.push_back(value.isDouble() ? std::bit_cast<int64_t>(value.toDouble()) : value.toSymInt().guard_int(__FILE__, __LINE__));
    note(value.isDouble() ? FactKind::FloatScalar : FactKind::ExactScalar);
    ++field;
  }
  cache::append_size(out.key, compiler.all_size_inputs.size());
  for (const auto& size : compiler.all_size_inputs) {
    out.facts.push_back(size.value);
    note(is_cpp_function(node) ? FactKind::SavedSize : FactKind::ExactScalar);  // formulas of other nodes get it as a number
    ++field;
  }
  for (const auto& tensor : compiler.tensor_args.inputs) {
    if (!is_plain(tensor)) return "saved tensor that is not a plain strided one";
    append_tensor_facts(tensor, out.facts, origins, {FactKind::TensorMeta, call, field++, 0});
    out.tensors.push_back(tensor);
  }
  return nullptr;
}

}  // namespace hindcast::capture
