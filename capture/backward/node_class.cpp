#include "capture/backward/node_class.h"

#include "capture/backward/copy_slices.h"
#include "capture/backward/node_calls.h"
#include "capture/backward/program_node.h"
#include "capture/backward/typed_collectors.h"
#include "capture/backward/visitor.h"
#include "base/fork.h"
#include "base/unloads.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <shared_mutex>
#include <typeinfo>
#include <unordered_map>

namespace hindcast::capture {
namespace {

using torch::autograd::Node;

struct KnownClass {
  NodeClass node_class;
  uint64_t unloads = 0;         // unload count when it was asked; 0: its code stays loaded
  bool is_of_one_node = false;  // the next node of the class may differ

  bool still_holds(Unloads& now) const { return unloads == 0 || unloads == now.count(); }
};

KnownClass classify_custom_function(Node& node, Unloads& now) {
  const Declared declared = ask_what_is_declared(node);
  if (declared.why_opaque != nullptr)
    return {.node_class = {NodeKind::Opaque, nullptr, declared.why_opaque}, .is_of_one_node = !declared.holds_for_class};
  return {.node_class = {NodeKind::Visited, nullptr, nullptr}, .unloads = base::stays_loaded(&typeid(node)) ? 0 : now.count()};
}

// Classes that LibTorch does not generate, and classes from outside LibTorch.
KnownClass ask(Node& node, Unloads& now) {
  if (dynamic_cast<const ProgramNode*>(&node) != nullptr) return {{NodeKind::Program, nullptr, nullptr}};
  const std::type_info& type = typeid(node);
  if (type == typeid(torch::autograd::CopyBackwards)) return {{NodeKind::Visited, nullptr, nullptr}};
  if (is_cpp_function(node)) return classify_custom_function(node, now);
  if (type == typeid(torch::autograd::CopySlices)) return {{NodeKind::Opaque, nullptr, nullptr, true}};
  return {{NodeKind::Opaque, nullptr, "node class that LibTorch cannot collect"}};
}

base::ForkSafe<std::shared_mutex>& classes_mutex = *new base::ForkSafe<std::shared_mutex>(base::ForkRank::Leaf);
auto& classes = *new std::unordered_map<const std::type_info*, KnownClass>;

NodeClass untyped(Node& node, Unloads& now) {
  const std::type_info* type = &typeid(node);
  {
    const std::shared_lock lock(classes_mutex);
    if (auto found = classes.find(type); found != classes.end() && found->second.still_holds(now)) return found->second.node_class;
  }
  const KnownClass known = ask(node, now);
  if (known.is_of_one_node) return known.node_class;
  const std::lock_guard lock(classes_mutex);
  classes.insert_or_assign(type, known);
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
