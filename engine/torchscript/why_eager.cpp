#include "engine/torchscript/why_eager.h"

#include "base/format.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <optional>

namespace hindcast::engine {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
namespace attr = c10::attr;
namespace prim = c10::prim;

bool is_known(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::NoneType:
      return true;
    case c10::TypeKind::DictType:
      if (type.containedType(0)->kind() == c10::TypeKind::TensorType) return false;
      [[fallthrough]];
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::UnionType:
    case c10::TypeKind::ListType:
    case c10::TypeKind::TupleType: {
      const auto parts = type.containedTypes();
      return std::all_of(parts.begin(), parts.end(), [](const c10::TypePtr& part) { return is_known(*part); });
    }
    default:
      return false;
  }
}

// Appending to a list that the forward created itself is not a side effect.
bool is_made_here(const Value& container) {
  const auto kind = container.node()->kind();
  return kind == prim::ListConstruct || kind == prim::DictConstruct || kind == c10::aten::list || kind == c10::aten::dict;
}

bool writes_to_container_of_others(const Node& node) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (schema == nullptr) return false;
  const size_t count = std::min(schema->arguments().size(), node.inputs().size());
  for (size_t i = 0; i < count; ++i) {
    const c10::AliasInfo* alias = schema->arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    const Value& written = *node.inputs()[i];
    const auto kind = written.type()->kind();
    if ((kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType) && !is_made_here(written)) return true;
  }
  return false;
}

bool is_operator(const Node& node) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  return schema != nullptr && c10::Dispatcher::singleton().findSchema(schema->operator_name()).has_value();
}

std::optional<std::string> effect_in(const Block& block);

// The inliner leaves the methods that a `with` calls.
std::optional<std::string> effect_of_context(const Node& node) {
  const auto type = node.inputs().at(0)->type()->cast<c10::ClassType>();
  auto* const method = type == nullptr ? nullptr : type->findMethod(node.kind() == prim::Enter ? "__enter__" : "__exit__");
  const auto* function = method == nullptr ? nullptr : torch::jit::tryToGraphFunction(*method);
  if (function == nullptr) return std::nullopt;  // a context of LibTorch's
  const auto graph = function->graph()->copy();
  torch::jit::Inline(*graph);
  return effect_in(*graph->block());
}

std::optional<std::string> effect_of(const Node& node) {
  const auto kind = node.kind();
  if (kind == prim::Enter || kind == prim::Exit) return effect_of_context(node);
  if (kind == prim::SetAttr) return base::format("assigns to the attribute '{}'", node.s(attr::name));
  if (kind == prim::fork || kind == prim::awaitable) return "starts a task (torch.jit.fork)";
  if (kind == prim::CallMethod) return base::format("calls the method '{}' of an interface or of a C++ class", node.s(attr::name));
  if (writes_to_container_of_others(node))
    return base::format("changes a list or a dictionary that it did not make ({})", kind.toQualString());
  if (kind == prim::RaiseException || is_operator(node)) return std::nullopt;
  if (node.hasSideEffects()) return base::format("has an effect ({})", kind.toQualString());
  return std::nullopt;
}

std::optional<std::string> effect_in(const Block& block) {
  for (const Node* node : block.nodes()) {
    if (auto effect = effect_of(*node)) return effect;
    for (const Block* inner : node->blocks()) {
      if (auto effect = effect_in(*inner)) return effect;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string why_eager(const torch::jit::Module& module) {
  const auto method = module.find_method("forward");
  if (!method) return {};  // the call throws LibTorch's error
  const auto* function = torch::jit::tryToGraphFunction(method->function());
  if (function == nullptr) return "A TorchScript module's forward is not TorchScript: its calls run eagerly.";
  const auto name = [&] { return module.type()->name() ? module.type()->name()->qualifiedName() : std::string("a module"); };
  for (const c10::Argument& result : function->getSchema().returns()) {
    if (!is_known(*result.type())) {
      return base::format("The forward of {} returns a value of type {}: its calls run eagerly.", name(), result.type()->repr_str());
    }
  }
  const auto graph = function->graph()->copy();
  torch::jit::Inline(*graph);
  const auto effect = effect_in(*graph->block());
  return effect ? base::format("The forward of {} {}: its calls run eagerly.", name(), *effect) : std::string();
}

}  // namespace hindcast::engine
