#include "capture/backward/node_class.h"

#include "capture/backward/copy_slices.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/program_node.h"
#include "capture/backward/typed_collectors.h"
#include "base/fork.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <memory>
#include <shared_mutex>
#include <string_view>
#include <typeinfo>
#include <unordered_map>

namespace hindcast::capture {
namespace {

using torch::autograd::Node;

// Classes that LibTorch writes by hand, and everybody else's.
NodeClass classify_untyped(Node& node) {
  if (dynamic_cast<const ProgramNode*>(&node) != nullptr) return {NodeKind::Program, nullptr, nullptr};
  const std::type_info& type = typeid(node);
  if (type == typeid(torch::autograd::CopyBackwards)) return {NodeKind::Visited, nullptr, nullptr};
  const std::string_view name = type.name();
  if (name.starts_with("N5torch8autograd7CppNodeI")) {
    if (is_declared_traceable(node)) return {NodeKind::Visited, nullptr, nullptr};
    return {NodeKind::Opaque, nullptr, "custom Function that is not declared traceable"};
  }
  if (type == typeid(torch::autograd::CopySlices)) return {NodeKind::Opaque, nullptr, nullptr, true};
  return {NodeKind::Opaque, nullptr, "node class that LibTorch cannot collect"};
}

const NodeClass& untyped(Node& node) {
  static auto& mutex = *new base::ForkSafe<std::shared_mutex>(base::ForkRank::Leaf);
  static auto* classes = new std::unordered_map<const std::type_info*, std::unique_ptr<NodeClass>>;
  const std::type_info* type = &typeid(node);
  {
    const std::shared_lock lock(mutex);
    if (auto found = classes->find(type); found != classes->end()) return *found->second;
  }
  auto node_class = std::make_unique<NodeClass>(classify_untyped(node));
  const std::lock_guard lock(mutex);
  return *classes->try_emplace(type, std::move(node_class)).first->second;
}

NodeClass class_of_write(Node& node) {
  NodeClass result{NodeKind::Opaque, nullptr, "in-place write to a view that was released"};
  if (const auto& write = written_by(node)) result = classify(*write);
  if (static_cast<torch::autograd::CopySlices&>(node).view_fn) {
    result = {NodeKind::Opaque, nullptr, "in-place write to a view that a function of LibTorch's makes again"};
  }
  result.writes_to_view = true;
  return result;
}

}  // namespace

NodeClass classify(Node& node) {
  if (const TypedCollector* typed = find_typed_collector(node)) return {NodeKind::Typed, typed, nullptr};
  if (typeid(node) == typeid(torch::autograd::AccumulateGrad)) return {NodeKind::Accumulate, nullptr, nullptr};
  const NodeClass& of_class = untyped(node);
  return of_class.writes_to_view ? class_of_write(node) : of_class;
}

}  // namespace hindcast::capture
