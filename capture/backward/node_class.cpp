#include "capture/backward/node_class.h"

#include "capture/backward/copy_slices.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/program_node.h"
#include "capture/backward/typed_collectors.h"
#include "base/fork.h"
#include "base/unloads.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

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

struct KnownClass {
  NodeClass node_class;
  uint64_t unloads;  // when it was asked; 0: its code stays

  bool still_holds(Unloads& now) const { return unloads == 0 || unloads == now.count(); }
};

KnownClass ask(Node& node, Unloads& now) {
  const NodeClass node_class = classify_untyped(node);
  const bool stays = node_class.kind != NodeKind::Visited || base::stays_loaded(&typeid(node));
  return {node_class, stays ? 0 : now.count()};
}

NodeClass untyped(Node& node, Unloads& now) {
  static auto& mutex = *new base::ForkSafe<std::shared_mutex>(base::ForkRank::Leaf);
  static auto* classes = new std::unordered_map<const std::type_info*, KnownClass>;
  const std::type_info* type = &typeid(node);
  {
    const std::shared_lock lock(mutex);
    if (auto found = classes->find(type); found != classes->end() && found->second.still_holds(now)) return found->second.node_class;
  }
  const KnownClass known = ask(node, now);
  const std::lock_guard lock(mutex);
  classes->insert_or_assign(type, known);
  return known.node_class;
}

NodeClass class_of_write(Node& node, Unloads& unloads) {
  NodeClass result{NodeKind::Opaque, nullptr, "in-place write to a view that was released"};
  if (const auto& write = written_by(node)) result = classify(*write, unloads);
  if (static_cast<torch::autograd::CopySlices&>(node).view_fn) {
    result = {NodeKind::Opaque, nullptr, "in-place write to a view that a function of LibTorch's makes again"};
  }
  result.writes_to_view = true;
  return result;
}

}  // namespace

uint64_t Unloads::count() {
  if (count_ == 0) count_ = base::unload_count();
  return count_;
}

NodeClass classify(Node& node, Unloads& unloads) {
  if (const TypedCollector* typed = find_typed_collector(node)) return {NodeKind::Typed, typed, nullptr};
  if (typeid(node) == typeid(torch::autograd::AccumulateGrad)) return {NodeKind::Accumulate, nullptr, nullptr};
  const NodeClass of_class = untyped(node, unloads);
  return of_class.writes_to_view ? class_of_write(node, unloads) : of_class;
}

}  // namespace hindcast::capture
