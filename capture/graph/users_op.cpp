#include "capture/graph/users_op.h"

#include "base/format.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <utility>

namespace hindcast::capture {
namespace {

constexpr size_t kMostTensors = 64;  // SeenOfAutograd has one bit for each

/// Passes tensors to a kernel with the requires_grad that it saw at capture, and maps its results back to the original tensors.
class Disguise {
 public:
  explicit Disguise(uint64_t requires_grad) : requires_grad_(requires_grad) {}

  at::Tensor put_on(const at::Tensor& tensor) {
    const size_t place = next_++;
    const bool requires_grad = place < kMostTensors && (requires_grad_ >> place & 1) != 0;
    if (!tensor.defined() || tensor.requires_grad() == requires_grad) return tensor;
    at::Tensor disguised = tensor.tensor_data();
    disguised.set_requires_grad(requires_grad);
    worn_.emplace_back(disguised, tensor);
    return disguised;
  }
  at::Tensor take_off(const at::Tensor& tensor) const {
    const auto found = std::find_if(worn_.begin(), worn_.end(), [&](const auto& each) { return each.first.is_same(tensor); });
    return found == worn_.end() ? tensor : found->second;
  }
  bool is_worn() const { return !worn_.empty(); }

 private:
  const uint64_t requires_grad_;
  size_t next_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> worn_;
};

}  // namespace

bool is_users(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return !name.starts_with("aten::") && !name.starts_with("hindcast::");
}

SeenOfAutograd seen_now(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs) {
  if (!is_users(op)) return {};
  SeenOfAutograd seen{.is_noted = true, .grad_mode = c10::GradMode::is_enabled()};
  size_t place = 0;
  for (const c10::IValue& input : inputs) {
    each_tensor(input, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.requires_grad() && place < kMostTensors) seen.requires_grad |= uint64_t{1} << place;
      ++place;
      return tensor;
    });
  }
  return seen;
}

void call_as_seen(const c10::OperatorHandle& op, const SeenOfAutograd& seen, torch::jit::Stack& stack) {
  if (!seen.is_noted) return op.callBoxed(stack);
  const c10::AutoGradMode grad_mode(seen.grad_mode);
  Disguise disguise(seen.requires_grad);
  for (c10::IValue& value : stack) value = each_tensor(value, [&](const at::Tensor& tensor) { return disguise.put_on(tensor); });
  op.callBoxed(stack);
  if (!disguise.is_worn()) return;
  for (c10::IValue& value : stack) value = each_tensor(value, [&](const at::Tensor& tensor) { return disguise.take_off(tensor); });
}

std::vector<Value> users_results(const Graph& graph, const Instr& instr) {
  std::vector<Value> results;
  if (!instr.seen.is_noted) return results;
  for (const ValueId id : instr.outputs) results.push_back(graph.values[id.index]);
  return results;
}

std::vector<at::Tensor> tensors_on(const torch::jit::Stack& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) {
      tensors.push_back(result.toTensor());
    } else {
      for (const at::Tensor& item : result.toTensorVector()) tensors.push_back(item);
    }
  }
  return tensors;
}

void expect_results(const c10::OperatorHandle& op, const torch::jit::Stack& results, c10::ArrayRef<Value> expected, const Env& env) {
  const auto refuse = [&](const std::string& seen, const std::string& before) {
    throw OtherResults(base::format("the results of the operator {} depend on data: {}, and {} for earlier arguments of the same sizes",
                                    c10::toString(op.operator_name()), seen, before));
  };
  const auto describe = [](bool defined, at::ScalarType dtype, at::IntArrayRef sizes) {
    return defined ? base::format("{} of size {}", c10::toString(dtype), sizes) : "no tensor";
  };
  const std::vector<at::Tensor> tensors = tensors_on(results);
  if (tensors.size() != expected.size()) refuse(base::format("{} tensors", tensors.size()), base::format("{}", expected.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.defined() && tensor.is_nested()) continue;  // has no sizes
    std::vector<int64_t> sizes;
    for (const ExprId size : expected[i].sizes) sizes.push_back(env.integer(size));
    const bool is_same = tensor.defined() ? expected[i].defined && tensor.scalar_type() == expected[i].dtype && tensor.sizes() == sizes
                                          : !expected[i].defined;
    if (is_same) continue;
    const bool defined = tensor.defined();
    refuse(describe(defined, defined ? tensor.scalar_type() : at::kFloat, defined ? tensor.sizes() : at::IntArrayRef()),
           describe(expected[i].defined, expected[i].dtype, sizes));
  }
}

c10::IValue each_tensor(const c10::IValue& value, c10::function_ref<at::Tensor(const at::Tensor&)> replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& item : value.toOptionalTensorVector()) list.push_back(item ? std::optional(replace(*item)) : std::nullopt);
    return list;
  }
  return value;
}

}  // namespace hindcast::capture
