#include "engine/torchscript/module_facts.h"

#include "hindcast/detail/script_values.h"

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace hindcast::engine {
namespace {

class Facts {
 public:
  void add(const c10::IValue& slot) {
    if (slot.isObject()) {
      const auto object = slot.toObject();
      add_identity(object.get());
      if (std::find(around_.begin(), around_.end(), object.get()) != around_.end()) return;  // it holds itself
      around_.push_back(object.get());
      for (const c10::IValue& each : object->slots()) add(each);
      around_.pop_back();
    } else if (detail::can_visit(slot)) {
      const auto tensor = [&](at::Tensor& each) { add_identity(each.unsafeGetTensorImpl()); };
      const auto fact = [&](const void* bytes, size_t size) { add_bytes(bytes, size); };
      c10::IValue copy = slot;
      visit(copy, detail::ValueVisitor{tensor, fact, /*replaces_tensors=*/false});
    } else {
      if (slot.isPtrType()) add_identity(slot.internalToPointer());
      add_contents(slot);
    }
  }
  std::string take() && { return std::move(facts_); }

 private:
  // Of a container that holds objects, or has tensors as keys.
  void add_contents(const c10::IValue& container) {
    if (container.isTuple()) {
      for (const c10::IValue& each : container.toTupleRef().elements()) add(each);
    } else if (container.isList()) {
      const auto list = container.toListRef();
      add_size(list.size());
      for (const c10::IValue& each : list) add(each);
    } else if (container.isGenericDict()) {
      const auto dict = container.toGenericDict();
      add_size(dict.size());
      for (const auto& entry : dict) {
        add(entry.key());
        add(entry.value());
      }
    }
  }

  void add_size(size_t size) { add_bytes(&size, sizeof(size)); }
  void add_bytes(const void* bytes, size_t size) { facts_.append(static_cast<const char*>(bytes), size); }
  void add_identity(const void* what) { add_bytes(&what, sizeof(what)); }

  std::string facts_;
  std::vector<const void*> around_;  // the objects that hold what is being added
};

}  // namespace

std::string facts_of(const torch::jit::Module& module) {
  Facts facts;
  for (const c10::IValue& slot : module._ivalue()->slots()) facts.add(slot);
  return std::move(facts).take();
}

std::vector<std::string> names_in(const torch::jit::Module& module, const std::vector<at::Tensor>& tensors) {
  std::unordered_map<const at::TensorImpl*, std::string> known;
  for (const auto& each : module.named_attributes()) {
    if (each.value.isTensor()) known.emplace(each.value.toTensor().unsafeGetTensorImpl(), each.name);
  }
  std::vector<std::string> names;
  for (const at::Tensor& tensor : tensors) {
    const auto found = known.find(tensor.unsafeGetTensorImpl());
    names.push_back(found == known.end() ? std::string() : found->second);
  }
  return names;
}

}  // namespace hindcast::engine
