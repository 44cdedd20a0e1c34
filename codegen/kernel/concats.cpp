#include "codegen/kernel/concats.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/util/accumulate.h>

namespace hindcast::codegen {

Concats::Concats(const Group& group, at::IntArrayRef domain, const capture::Env& env, MakeTensor make_new, const CostModel& costs)
    : costs_(costs) {
  size_t store = group.stores.size();
  for (const Group::Concat& concat : group.concats) {
    add(concat, group.body.stores[store].type, domain, env, make_new);
    store += concat.parts.size();
  }
}

void Concats::add(const Group::Concat& concat, at::ScalarType type, at::IntArrayRef domain, const capture::Env& env, MakeTensor make_new) {
  const Ints part = sizes_of(concat.shape, env);
  const auto count = static_cast<int64_t>(concat.parts.size());
  const auto bytes = static_cast<int64_t>(c10::elementSize(type));
  Result& result = results_.emplace_back();
  result.dim = concat.dim;
  result.is_stack = concat.is_stack;
  // Elements of a part that are contiguous in the result: those of `dim` and of the dims inside it.
  const int64_t piece = c10::multiply_integers(part.begin() + concat.dim, part.end());
  const bool is_dense = piece == c10::multiply_integers(part);
  if (!is_dense && !costs_.is_concat_written_in_place(piece)) {
    for (size_t i = 0; i < concat.parts.size(); ++i) {
      const at::Tensor& own = result.copied.emplace_back(make_new(part, row_major_strides(part), type));
      Part& written = parts_.emplace_back(Part{static_cast<char*>(own.mutable_data_ptr()), row_major_strides(domain)});
      for (int64_t& step : written.steps) step *= bytes;
    }
    return;
  }
  are_dense_ = are_dense_ && is_dense;
  Ints whole = part;
  if (concat.is_stack) {
    whole.insert(whole.begin() + concat.dim, count);
  } else {
    whole[concat.dim] *= count;
  }
  result.tensor = make_new(whole, row_major_strides(whole), type);
  Ints strides = row_major_strides(part);
  for (size_t dim = 0; dim < part.size(); ++dim) strides[dim] *= dim < concat.dim ? count * bytes : bytes;
  const Ints steps = byte_strides_of(part, strides, concat.dim_of_axis, domain);
  char* memory = static_cast<char*>(result.tensor.mutable_data_ptr());
  for (int64_t i = 0; i < count; ++i) parts_.push_back({memory + i * piece * bytes, steps, results_.size() - 1, i * piece * bytes});
}

bool Concats::are_in_place() const {
  return std::all_of(results_.begin(), results_.end(), [](const Result& result) { return result.copied.empty(); });
}

void Concats::for_each_tensor(c10::function_ref<void(const at::Tensor&)> see) const {
  for (const Result& result : results_) {
    if (result.copied.empty()) see(result.tensor);
    for (const at::Tensor& part : result.copied) see(part);
  }
}

at::Tensor Concats::take(size_t concat) {
  Result& result = results_[concat];
  if (result.copied.empty()) return std::move(result.tensor);
  const std::vector<at::Tensor> parts = std::move(result.copied);
  return result.is_stack ? at::stack(parts, result.dim) : at::cat(parts, result.dim);
}

}  // namespace hindcast::codegen
