#include "bench/gpu/aten_calls.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

namespace hindcast::bench::gpu {
namespace {

thread_local AtenCalls* counting = nullptr;

struct CallThatCounts final : at::ObserverContext {};

bool launches_nothing(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  constexpr auto kNewMemory = std::to_array<std::string_view>({"aten::empty", "aten::new_empty", "aten::resize_"});
  if (std::any_of(kNewMemory.begin(), kNewMemory.end(), [&](std::string_view start) { return name.starts_with(start); })) return true;
  if (schema.returns().empty()) return true;
  const auto* const alias = schema.returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

/// It writes to its first argument, of which it needs no value.
bool overwrites(const c10::FunctionSchema& schema) {
  return schema.name() == "aten::copy_" || schema.name() == "aten::fill_" || schema.name() == "aten::zero_";
}

double bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return 0;
  auto bytes = static_cast<double>(tensor.element_size());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) bytes *= tensor.stride(dim) == 0 ? 1 : static_cast<double>(tensor.size(dim));
  return bytes;
}

double bytes_of(c10::ArrayRef<const c10::IValue> values) {
  double bytes = 0;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) bytes += bytes_of(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += bytes_of(tensor);
  }
  return bytes;
}

}  // namespace

AtenCalls::AtenCalls()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(at_start, at_end).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}))) {
  counting = this;
}

AtenCalls::~AtenCalls() {
  at::removeCallback(handle_);
  counting = nullptr;
}

std::unique_ptr<at::ObserverContext> AtenCalls::at_start(const at::RecordFunction& call) {
  const auto schema = call.operator_schema();
  if (!schema || launches_nothing(*schema)) return nullptr;
  if (counting->depth_++ == 0) counting->read_ = bytes_of(call.inputs().slice(overwrites(*schema) ? 1 : 0));
  return std::make_unique<CallThatCounts>();
}

void AtenCalls::at_end(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr || --counting->depth_ != 0) return;
  const double written = bytes_of(c10::ArrayRef<const c10::IValue>(call.outputs().data(), call.outputs().size()));
  if (written == 0) return;  // no tensor comes out: numbers, and questions about tensors
  counting->count_ += 1;
  counting->bytes_ += counting->read_ + written;
}

}  // namespace hindcast::bench::gpu
