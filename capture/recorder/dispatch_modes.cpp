#include "capture/recorder/dispatch_modes.h"

#include "capture/graph/users_op.h"
#include "capture/recorder/tracing_tensor.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

namespace hindcast::capture {
namespace {

bool any_tensor_in(const c10::IValue& value, c10::function_ref<bool(const at::Tensor&)> is) {
  bool found = false;
  each_tensor(value, [&](const at::Tensor& tensor) {
    found = found || (tensor.defined() && is(tensor));
    return tensor;
  });
  return found;
}

bool any_argument(const c10::OperatorHandle& op, const torch::jit::Stack& stack, c10::function_ref<bool(const c10::IValue&)> is) {
  return std::any_of(stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()), stack.end(), is);
}

bool is_foreign(const c10::SymInt& size) { return size.is_symbolic() && SymbolTable::is_foreign(size.toSymNode()); }

bool has_foreign_sizes(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() || TracingTensor::get(tensor) != nullptr) return false;
  const auto sizes = tensor.sym_sizes();
  return std::any_of(sizes.begin(), sizes.end(), is_foreign);
}

}  // namespace

bool is_in_dispatch_mode() { return c10::impl::TorchDispatchModeTLS::any_modes_set(); }

bool any_tensor(const c10::OperatorHandle& op, const torch::jit::Stack& stack, c10::function_ref<bool(const at::Tensor&)> is) {
  return any_argument(op, stack, [&](const c10::IValue& value) { return any_tensor_in(value, is); });
}

bool has_foreign_symbols(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return any_argument(op, stack, [](const c10::IValue& value) {
    if (value.isSymInt()) return is_foreign(value.toSymInt());
    if (!value.isSymIntList()) return any_tensor_in(value, has_foreign_sizes);
    const auto sizes = value.toSymIntVector();
    return std::any_of(sizes.begin(), sizes.end(), is_foreign);
  });
}

bool has_plain_data(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

}  // namespace hindcast::capture
