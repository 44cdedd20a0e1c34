#include "capture/recorder/data_sizes.h"

#include "capture/recorder/tracing_tensor.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hindcast::capture {
namespace {

// Ops whose data-dependent size is in dimension 0 of each result that has it.
constexpr auto kOps = std::to_array<std::string_view>({"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::bincount"});

Sizes traced_sizes_of(const at::Tensor& tensor, SymbolTable& symbols) {
  Sizes sizes;
  if (const TracingTensor* traced = TracingTensor::get(tensor)) {
    for (const c10::SymInt& size : traced->traced_sizes()) sizes.push_back(symbols.expr_of(size));
  } else {
    for (const int64_t size : tensor.sizes()) sizes.push_back(symbols.integer(size));
  }
  return sizes;
}

Sizes real_sizes_of(const at::Tensor& tensor, SymbolTable& symbols) {
  Sizes sizes;
  if (!tensor.defined()) return sizes;
  for (const int64_t size : tensor.sizes()) sizes.push_back(symbols.integer(size));
  return sizes;
}

}  // namespace

bool has_data_size(const c10::OperatorName& op) {
  return op.overload_name.empty() && std::find(kOps.begin(), kOps.end(), op.name) != kOps.end();
}

SizesByData sizes_by_data(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, const std::vector<at::Tensor>& outputs,
                          SymbolTable& symbols) {
  SizesByData found;
  for (const at::Tensor& output : outputs) found.sizes.push_back(real_sizes_of(output, symbols));
  const int64_t hint = outputs[0].size(0);
  found.symbol = symbols.unbacked_symbol(hint);
  found.dims.emplace_back(0, 0);
  const bool is_unique = op.operator_name().name == "aten::_unique2";
  if (is_unique && inputs[2].toBool()) found.sizes[1] = traced_sizes_of(inputs[0].toTensor(), symbols);  // inverse indices
  if (is_unique && inputs[3].toBool()) found.dims.emplace_back(2, 0);                                    // counts
  if (hint < 2) {
    symbols.pin(found.symbol);
    return found;
  }
  symbols.decide(Cmp::LessEqual, symbols.integer(2), found.symbol);
  for (const auto& [result, dim] : found.dims) found.sizes[result][dim] = found.symbol;
  return found;
}

}  // namespace hindcast::capture
