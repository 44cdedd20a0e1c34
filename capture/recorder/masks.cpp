// Indexing by masks, recorded as indexing by the numbers of their true elements: only nonzero() has an unbacked size, once per mask, and a
// backward indexes by the same numbers.

#include "capture/graph/known_op.h"
#include "capture/recorder/recorder.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/select.h>

#include <algorithm>

namespace hindcast::capture {
namespace {

bool has_same_sizes(c10::SymIntArrayRef some, c10::SymIntArrayRef others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const c10::SymInt& a, const c10::SymInt& b) { return a == b; });
}

const c10::OperatorName kIndex("aten::index", "Tensor"), kSelect("aten::masked_select", ""), kPut("aten::index_put_", ""),
    kPutImpl("aten::_index_put_impl_", ""), kPutNew("aten::index_put", "");

using Indices = std::vector<std::optional<at::Tensor>>;

bool has_masks(const Indices& indices) { return std::any_of(indices.begin(), indices.end(), is_mask); }

// Otherwise the op throws.
bool fit(const Indices& indices, const at::Tensor& indexed) {
  size_t dim = 0;
  for (const auto& index : indices) {
    const size_t dims = is_mask(index) ? static_cast<size_t>(index->dim()) : 1;
    if (dims == 0 || dim + dims > static_cast<size_t>(indexed.dim())) return false;
    if (is_mask(index) && !has_same_sizes(indexed.sym_sizes().slice(dim, dims), index->sym_sizes())) return false;
    dim += dims;
  }
  return true;
}

// To write one value everywhere, ATen takes the mask itself. The backward of other values indexes their gradient by the mask: then the op
// with the data-dependent size must be in the forward.
bool is_put_by_numbers(const std::vector<c10::IValue>& inputs, bool are_known) {
  const at::Tensor& values = inputs[2].toTensor();
  const bool needs_gradient = values.requires_grad() && at::GradMode::is_enabled();
  return are_known ? needs_gradient || values.dim() > 0 || inputs[3].toBool() : needs_gradient;
}

}  // namespace

// One tensor of indices per dimension of the mask, as stand-ins.
std::vector<at::Tensor> Recorder::numbers_of(const at::Tensor& mask) {
  const ValueId id = value_of(mask);
  auto known = numbers_of_masks_.find(id.index);
  if (known == numbers_of_masks_.end()) {
    const at::Tensor all = at::nonzero(mask);
    NumbersOfMask numbers;
    for (int64_t dim = 0; dim < mask.dim(); ++dim) {
      const at::Tensor column = at::select(all, 1, dim);
      const TracingTensor* traced = TracingTensor::get(column);
      if (traced == nullptr) return {};  // recording has ended
      numbers.real.push_back(traced->real);
      numbers.values.push_back(value_of(column));
    }
    numbers.end = graph_.instrs.size();
    known = numbers_of_masks_.emplace(id.index, std::move(numbers)).first;
  }
  std::vector<at::Tensor> columns;
  for (size_t dim = 0; dim < known->second.real.size(); ++dim)
    columns.push_back(stand_in(known->second.real[dim], known->second.values[dim]));
  return columns;
}

// False: the op is to be recorded unchanged.
bool Recorder::record_by_numbers(const c10::OperatorHandle& op, const std::vector<c10::IValue>& inputs, torch::jit::Stack* stack) {
  static constinit KnownOp index("aten::index", "Tensor"), nonzero("aten::nonzero");
  const c10::OperatorName& name = op.operator_name();
  const bool is_select = name == kSelect, is_index = name == kIndex, is_put = name == kPut || name == kPutImpl || name == kPutNew;
  if ((!is_select && !is_index && !is_put) || refusal_) return false;
  const at::Tensor& indexed = inputs[0].toTensor();
  const Indices indices = is_select ? Indices{inputs[1].toTensor()} : inputs[1].toOptionalTensorVector();
  if (!has_masks(indices)) return false;
  const auto is_known = [&](const std::optional<at::Tensor>& each) {
    return !is_mask(each) || numbers_of_masks_.contains(value_of(*each).index);
  };
  const bool are_known = std::all_of(indices.begin(), indices.end(), is_known);
  if (is_put && !is_put_by_numbers(inputs, are_known)) return false;
  if (!are_known && policy_.depends_on_data(nonzero.get()) == Answer::Refuse) return false;
  if (is_select && indexed.dim() != indices[0]->dim()) return false;  // it broadcasts
  if (!fit(indices, indexed)) return false;

  const at::AutoDispatchBelowADInplaceOrView below;
  c10::List<std::optional<at::Tensor>> by_numbers;
  for (const auto& each : indices) {
    if (!is_mask(each)) {
      by_numbers.push_back(each);
      continue;
    }
    const std::vector<at::Tensor> columns = numbers_of(*each);
    if (columns.empty()) return false;
    for (const at::Tensor& column : columns) by_numbers.push_back(column);
  }
  torch::jit::Stack call = inputs;
  call[1] = by_numbers;
  if (is_select) call.resize(2);
  record(is_select ? index.get() : op, &call);
  for (c10::IValue& result : call) stack->push_back(std::move(result));
  return true;
}

// Forgets masks whose numbers were recorded in instrs that have been dropped.
void Recorder::forget_dropped_masks() {
  std::erase_if(numbers_of_masks_, [&](const auto& each) { return each.second.end > graph_.instrs.size(); });
}

}  // namespace hindcast::capture
