#include "capture/recorder/real_arguments.h"

#include "capture/graph/users_op.h"

namespace hindcast::capture {

at::Tensor real_of(const at::Tensor& tensor) {
  const TracingTensor* traced = TracingTensor::get(tensor);
  return traced ? traced->real : tensor;
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
