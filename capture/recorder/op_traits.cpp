#include "capture/recorder/op_traits.h"

#include "base/fork.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace hindcast::capture {
namespace {

bool is_tensors(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return true;
  return type.kind() == c10::TypeKind::ListType && type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool returns_a_view(const c10::OperatorHandle& op) { return op.schema().returns().at(0).alias_info() != nullptr; }

bool changes_geometry(const c10::OperatorHandle& op, const OpTraits& traits) {
  if (op.hasTag(at::Tag::inplace_view) && !traits.view) return true;
  return op.operator_name().name == "aten::_resize_output_";
}

std::vector<OpTrait> unusual_traits(const c10::OperatorHandle& op, const OpTraits& traits) {
  std::vector<OpTrait> unusual;
  if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) unusual.push_back(OpTrait::DependsOnData);
  if (changes_geometry(op, traits)) unusual.push_back(OpTrait::ChangesGeometry);
  if (op.hasTag(at::Tag::nondeterministic_seeded)) unusual.push_back(OpTrait::DrawsRandomNumbers);
  if (traits.written.size() > 1) unusual.push_back(OpTrait::WritesToSeveral);
  const auto& results = op.schema().returns();
  if (!std::all_of(results.begin(), results.end(), [](const c10::Argument& result) { return is_tensors(*result.type()); }))
    unusual.push_back(OpTrait::ReturnsNoTensor);
  return unusual;
}

OpTraits read_traits(const c10::OperatorHandle& op) {
  OpTraits traits;
  const bool stays_whole = op.operator_name().name == "hindcast::formula";  // capture/function/whole_formulas.h
  traits.composite = !stays_whole && op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                     !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  const auto& arguments = op.schema().arguments();
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias && alias->isWrite()) traits.written.push_back(i);
  }
  traits.takes_storage = op.operator_name().name == "aten::as_strided";
  if (op.hasTag(at::Tag::inplace_view)) {
    std::string name = op.operator_name().name;
    name.pop_back();                                      // the underscore
    const bool is_transpose = name == "aten::transpose";  // its overload has a name
    traits.view = c10::Dispatcher::singleton().findSchema({name, is_transpose ? "int" : op.operator_name().overload_name});
    if (traits.view && !returns_a_view(*traits.view)) traits.view.reset();  // set_() and resize_() make no views
  }
  traits.unusual = unusual_traits(op, traits);
  return traits;
}

}  // namespace

bool OpTraits::draws_random_numbers() const {
  return std::find(unusual.begin(), unusual.end(), OpTrait::DrawsRandomNumbers) != unusual.end();
}

const char* describe(OpTrait trait) {
  switch (trait) {
    case OpTrait::DependsOnData:
      return "result depends on the data";
    case OpTrait::ChangesGeometry:
      return "changes the geometry of its argument in place";
    case OpTrait::DrawsRandomNumbers:
      return "draws random numbers";
    case OpTrait::WritesToSeveral:
      return "writes to several arguments";
    case OpTrait::ReturnsNoTensor:
      return "returns something that is not a tensor";
  }
  return "";
}

const char* advise(OpTrait trait) {
  switch (trait) {
    case OpTrait::DependsOnData:
      return ". Keep it outside of the function; sizes that depend on data are known of nonzero(), masks and unique() alone";
    case OpTrait::ChangesGeometry:
      return ". Make a view, or a new tensor";
    case OpTrait::WritesToSeveral:
      return ". Write the form that returns new tensors";
    case OpTrait::DrawsRandomNumbers:
    case OpTrait::ReturnsNoTensor:
      break;
  }
  return "";
}

static base::ForkSafe<std::mutex>& traits_mutex = *new base::ForkSafe<std::mutex>(base::ForkRank::Leaf);
static auto& known_traits = *new std::unordered_map<c10::OperatorName, OpTraits>;

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  const std::lock_guard lock(traits_mutex);
  if (auto found = known_traits.find(op.operator_name()); found != known_traits.end()) return found->second;
  return known_traits.try_emplace(op.operator_name(), read_traits(op)).first->second;
}

bool is_mask(const std::optional<at::Tensor>& index) {
  return index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

bool indexes_by_numbers(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs) {
  const c10::OperatorName& name = op.operator_name();
  if (name.name != "aten::index" || name.overload_name != "Tensor") return false;
  const auto indices = inputs[1].toOptionalTensorVector();
  return std::none_of(indices.begin(), indices.end(), is_mask);
}

}  // namespace hindcast::capture
