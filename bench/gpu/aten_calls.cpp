#include "bench/gpu/aten_calls.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

namespace hindcast::bench::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// For all threads: the backward of a card runs in a thread of autograd's, which inherits the calling thread's callbacks.
AtenCalls* counting = nullptr;

struct CallThatCounts final : at::ObserverContext {
  Clock::time_point start;
};

bool launches_nothing(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  constexpr auto kNewMemory = std::to_array<std::string_view>({"aten::empty", "aten::new_empty", "aten::resize_"});
  if (std::any_of(kNewMemory.begin(), kNewMemory.end(), [&](std::string_view start) { return name.starts_with(start); })) return true;
  if (name == "hindcast::counters") return true;  // kept on a card (codegen/kernel/kept_counters.h)
  if (schema.returns().empty()) return true;
  const auto* const alias = schema.returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

/// It overwrites its first argument without reading it.
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
  if (counting->is_inside_) return nullptr;
  const auto schema = call.operator_schema();
  if (!schema || launches_nothing(*schema)) return nullptr;
  counting->is_inside_ = true;
  counting->read_ = bytes_of(call.inputs().slice(overwrites(*schema) ? 1 : 0));
  auto context = std::make_unique<CallThatCounts>();
  context->start = Clock::now();
  return context;
}

void AtenCalls::at_end(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr) return;
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - static_cast<CallThatCounts*>(context)->start).count();
  counting->is_inside_ = false;
  const double written = bytes_of(c10::ArrayRef<const c10::IValue>(call.outputs().data(), call.outputs().size()));
  if (written == 0) return;  // returns no tensor: numbers, and queries of tensors
  counting->count_ += 1;
  counting->bytes_ += counting->read_ + written;
  OperatorCalls& calls = counting->by_name_[call.name()];
  calls.count += 1;
  calls.us += us;
}

}  // namespace hindcast::bench::gpu
