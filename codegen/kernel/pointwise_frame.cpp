#include "codegen/kernel/pointwise_frame.h"

#include <algorithm>
#include <numeric>

namespace hindcast::codegen {

PointwiseFrame::PointwiseFrame(const Group& group, const ResultMaker& maker) : CallFrame(group, maker), axes_(group.domain.size()) {
  std::iota(axes_.begin(), axes_.end(), uint8_t(0));
  for (const BodyLoad& load : group.body.loads) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(load.type)));
  for (const BodyStore& store : group.body.stores) element_sizes_.push_back(static_cast<int64_t>(c10::elementSize(store.type)));
  for (const Access& access : group.accesses) {
    reads_padded_ = reads_padded_ || !access.offsets.empty();
    is_in_order_.push_back(goes_along(access));
  }
  for (size_t i = 0; i < group.shapes.size(); ++i)
    has_shape_of_domain_.push_back(group.shapes[i] == group.domain && group.orders[i].empty());
}

void PointwiseFrame::lay_out(Call& call) const {
  call.strides.resize(call.domain.size());
  for (size_t axis = call.domain.size(); axis-- > 0;) {
    call.strides[axis] = call.numel;
    call.numel *= std::max<int64_t>(call.domain[axis], 1);
  }
  call.is_one_loop = !call.is_empty() && call.concats.are_dense() && is_one_loop(call);
}

ResultLayout PointwiseFrame::layout_of(const Call& call, size_t store) const {
  const at::ScalarType type = group_.body.stores[store].type;
  if (has_shape_of_domain_[store]) return {call.domain, call.strides, type};
  const Ints shape = sizes_of(group_.shapes[store], call.env);
  return {shape, dense_strides(shape, group_.orders[store]), type};
}

// Whether every load has the layout of the results, or is one element.
bool PointwiseFrame::is_one_loop(const Call& call) const {
  const at::IntArrayRef sizes = call.domain, strides = call.strides;
  const int64_t numel = call.numel;
  if (reads_padded_) return false;
  for (size_t i = 0; i < loads_; ++i) {
    const at::Tensor& tensor = call.load(i);
    if (is_broadcast(i)) {
      if (tensor.numel() != 1) return false;
    } else if (!is_in_order_[i]) {
      if (!lies_as_domain(i, call)) return false;
    } else if (group_.accesses[i].sizes.empty() && tensor.sizes() == sizes) {
      if (numel != 1 && tensor.strides() != strides) return false;
    } else if (tensor.numel() != numel || !tensor.is_contiguous()) {
      return false;
    }
  }
  return true;
}

// Whether the load has one dim per axis, with the axis' size and stride.
bool PointwiseFrame::lies_as_domain(size_t load, const Call& call) const {
  const Access& access = group_.accesses[load];
  if (!access.sizes.empty()) return false;
  const at::Tensor& tensor = call.load(load);
  for (size_t axis = 0; axis < call.domain.size(); ++axis) {
    if (call.domain[axis] == 1) continue;
    const int8_t dim = access.dim_of_axis[axis];
    if (dim < 0 || tensor.size(dim) != call.domain[axis] || tensor.stride(dim) != call.strides[axis]) return false;
  }
  return true;
}

PointwiseFrame::Nest PointwiseFrame::nest_of(const Call& call, c10::ArrayRef<at::Tensor> results, const at::Tensor* product) const {
  Nest nest;
  c10::SmallVector<Ints, 16> steps;
  c10::SmallVector<Spans, 4> spans;
  if (reads_padded_) spans.resize(element_sizes_.size() + (product != nullptr ? 1 : 0));
  for (size_t i = 0; i < loads_; ++i) {
    nest.loads.push_back(call.load(i));
    at::Tensor& tensor = nest.loads.back();
    const Access& access = group_.accesses[i];
    if (const auto padding = access.offsets.empty() ? std::nullopt : place_padded(tensor, access, call.domain, call.env)) {
      steps.push_back(padding->steps);
      spans[i] = padding->spans;
      nest.pointers.push_back(memory_of(tensor) + padding->first);
      continue;
    }
    steps.push_back(byte_strides_of(tensor, access, call.domain, call.env));
    nest.pointers.push_back(memory_of(tensor));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& result = results[i];  // if undefined, its leaves have the layout that it would have
    const int64_t width = result.defined() ? static_cast<int64_t>(result.element_size()) : element_sizes_[loads_ + i];
    Ints& own = steps.emplace_back(call.strides.begin(), call.strides.end());
    for (int64_t& bytes : own) bytes *= width;
    nest.pointers.push_back(memory_of(result));
  }
  for (const Concats::Part& part : call.concats.parts()) {
    steps.push_back(part.steps);
    nest.pointers.push_back(part.memory);
  }
  if (product != nullptr) {
    Ints& own = steps.emplace_back(call.strides.begin(), call.strides.end());
    for (int64_t& bytes : own) bytes *= static_cast<int64_t>(product->element_size());
    nest.pointers.push_back(memory_of(*product));
  }
  nest.loops = make_nest(call.domain, axes_, steps, spans);
  return nest;
}

}  // namespace hindcast::codegen
