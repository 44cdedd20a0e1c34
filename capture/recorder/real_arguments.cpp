#include "capture/recorder/real_arguments.h"

namespace hindcast::capture {

at::Tensor real_of(const at::Tensor& tensor) {
  const TracingTensor* traced = TracingTensor::get(tensor);
  return traced ? traced->real : tensor;
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

c10::IValue real_tensors(const c10::IValue& value) { return each_tensor(value, real_of); }

c10::IValue real_argument(const c10::IValue& value, SymbolTable& symbols) {
  if (value.isSymInt()) return symbols.hint(symbols.expr_of(value.toSymInt()));
  if (value.isSymFloat()) return symbols.real_hint(symbols.expr_of(value.toSymFloat()));
  if (value.isSymIntList()) {
    std::vector<int64_t> list;
    for (const c10::SymInt& size : value.toSymIntVector()) list.push_back(symbols.hint(symbols.expr_of(size)));
    return list;
  }
  return real_tensors(value);
}

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) {
      tensors.push_back(result.toTensor());
    } else if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

}  // namespace hindcast::capture
