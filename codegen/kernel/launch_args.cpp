#include "codegen/kernel/launch_args.h"

#include "codegen/kernel/operand_copies.h"

#include "base/format.h"

#include <ATen/ops/constant_pad_nd.h>
#include <c10/core/impl/COW.h>
#include <c10/util/accumulate.h>

#include <algorithm>

namespace hindcast::codegen {
namespace {

using capture::Arg;
using capture::Env;

int64_t value_of(const Offset& offset, const Env& env) {
  const int64_t number = offset.start ? env.integer(*offset.start) : offset.number;
  if (!offset.size) return number;
  const int64_t size = env.integer(*offset.size);
  return std::clamp<int64_t>(number < 0 ? number + size : number, 0, size);
}

}  // namespace

std::string describe_kernel(const Group& group) {
  constexpr size_t kMostNamed = 8;
  std::string text = base::format("kernel of {} ops{}", group.members.size(), group.body.by_rows ? " by rows" : "");
  for (size_t i = 0; i < std::min(kMostNamed, group.body.ops.size()); ++i)
    text += base::format("{}{}", i == 0 ? ": " : ", ", name_of(group.body.ops[i]));
  return group.body.ops.size() > kMostNamed ? text + ", ..." : text;
}

Ints sizes_of(const std::vector<capture::ExprId>& sizes, const Env& env) {
  Ints numbers;
  for (const auto size : sizes) numbers.push_back(env.integer(size));
  return numbers;
}

Ints row_major_strides(at::IntArrayRef sizes) {
  Ints strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

Ints dense_strides(at::IntArrayRef sizes, c10::ArrayRef<uint8_t> order) {
  if (order.empty()) return row_major_strides(sizes);
  Ints strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0; stride *= std::max<int64_t>(sizes[order[i]], 1)) strides[order[i]] = stride;
  return strides;
}

bool is_lazy(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kBits({c10::DispatchKey::Negative, c10::DispatchKey::Conjugate, c10::DispatchKey::ZeroTensor});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kBits);
}

double number_in(const at::Tensor& tensor) {
  if (!is_lazy(tensor)) {  // fast path: item() takes a microsecond
    if (tensor.scalar_type() == at::kDouble) return *tensor.const_data_ptr<double>();
    if (tensor.scalar_type() == at::kFloat) return static_cast<double>(*tensor.const_data_ptr<float>());
    if (tensor.scalar_type() == at::kLong) return static_cast<double>(*tensor.const_data_ptr<int64_t>());
  }
  return tensor.item().toDouble();
}

ScalarArgs::ScalarArgs(const Group& group) : values_(group.scalars.size()) {
  const auto& scalars = group.scalars;
  const auto& unread = group.unread;
  for (size_t i = 0; i < scalars.size(); ++i) {
    if (scalars[i].number.defined()) {
      const auto place = std::find(unread.begin(), unread.end(), scalars[i].number) - unread.begin();
      numbers_.emplace_back(i, group.loads.size() + static_cast<size_t>(place));
      continue;
    }
    if (scalars[i].value.kind == Arg::Kind::Constant) values_[i] = scalars[i].value.constant.toScalar().toDouble();
    if (scalars[i].value.kind != Arg::Kind::Constant || !scalars[i].divisors.empty()) changing_.emplace_back(i, scalars[i]);
  }
}

c10::SmallVector<double, 16> ScalarArgs::values(const Env& env, const Step& step, const Slots& slots) const {
  auto numbers = values(env);
  for (const auto& [i, input] : numbers_) numbers[i] = number_in(slots[step.inputs[input].slot]);
  return numbers;
}

c10::SmallVector<double, 16> ScalarArgs::values(const Env& env) const {
  c10::SmallVector<double, 16> numbers(values_.begin(), values_.end());
  for (const auto& [i, scalar] : changing_) {
    const Arg& arg = scalar.value;
    if (arg.kind == Arg::Kind::Float) numbers[i] = env.real(arg.exprs[0]);
    if (arg.kind == Arg::Kind::Int) numbers[i] = static_cast<double>(env.integer(arg.exprs[0]));
    int64_t divisor = 1;
    for (const auto size : scalar.divisors) divisor *= env.integer(size);
    if (!scalar.divisors.empty()) numbers[i] /= static_cast<double>(divisor);
  }
  return numbers;
}

void make_plain(at::Tensor& tensor) {
  if (C10_UNLIKELY(is_lazy(tensor))) {
    tensor = tensor.clone();
    ++operand_copies();
  }
}

at::Tensor alias_of(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  const c10::DispatchKeySet key(c10::computeDispatchKey(std::nullopt, std::nullopt, tensor.device()));
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), key, tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, tensor.storage_offset());
  return alias;
}

// Whether the tensor's memory can be reused. It must be from an allocator: memory of from_blob() belongs to the user, and copy-on-write
// memory is shared.
bool is_given_away(const at::Tensor& tensor) {
  if (tensor.use_count() != 1 || tensor.is_inference()) return false;
  const c10::Storage& storage = tensor.storage();
  return storage.use_count() == 1 && storage.resizable() && storage.allocator() != nullptr &&
         !c10::impl::cow::is_cow_data_ptr(storage.data_ptr()) && storage.nbytes() == tensor.nbytes();
}

ResultMemory::ResultMemory(const Step& step, const Slots& slots, size_t loads, MakeTensor make_new, const CostModel& costs)
    : make_new_(make_new) {
  for (size_t i = 0; i < loads; ++i) {
    if (!step.inputs[i].last) continue;
    const at::Tensor& operand = slots[step.inputs[i].slot];
    if (costs.is_memory_worth_taking(static_cast<int64_t>(operand.nbytes())) && is_given_away(operand)) given_.push_back(&operand);
  }
}

at::Tensor ResultMemory::make(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType type) {
  for (const at::Tensor*& operand : given_) {
    if (operand == nullptr || operand->scalar_type() != type || operand->numel() != c10::multiply_integers(sizes)) continue;
    const bool lies_alike = operand->sizes() == sizes ? operand->strides() == strides
                                                      : operand->is_contiguous() && at::IntArrayRef(row_major_strides(sizes)) == strides;
    if (!lies_alike) continue;
    at::Tensor result = alias_of(*operand, sizes, strides);
    operand = nullptr;
    return result;
  }
  return make_new_(sizes, strides, type);
}

Ints byte_strides_of(at::Tensor& tensor, const Access& access, at::IntArrayRef domain, const Env& env) {
  Ints sizes, strides;
  if (access.sizes.empty()) {
    sizes.append(tensor.sizes().begin(), tensor.sizes().end());
    strides.append(tensor.strides().begin(), tensor.strides().end());
  } else {
    if (!access.offsets.empty()) {
      tensor = at::constant_pad_nd(tensor, pad_of(tensor, access, env));
      ++operand_copies();
    }
    if (C10_UNLIKELY(!tensor.is_contiguous())) {
      tensor = tensor.contiguous();
      ++operand_copies();
    }
    sizes = sizes_of(access.sizes, env);
    strides = row_major_strides(sizes);
  }
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  for (int64_t& stride : strides) stride *= bytes;
  return byte_strides_of(sizes, std::move(strides), access.dim_of_axis, domain);
}

Ints byte_strides_of(at::IntArrayRef sizes, Ints strides, const std::vector<int8_t>& dim_of_axis, at::IntArrayRef domain) {
  Ints steps(domain.size(), 0);
  for (size_t axis = domain.size(); axis-- > 0;) {
    const int8_t dim = dim_of_axis[axis];
    if (dim < 0 || sizes[static_cast<size_t>(dim)] == 1) continue;
    int64_t& stride = strides[static_cast<size_t>(dim)];
    steps[axis] = stride;
    stride *= domain[axis];
  }
  return steps;
}

Ints offsets_of(const Access& access, const Env& env) {
  Ints sums(access.offsets.size(), 0);
  for (size_t dim = 0; dim < sums.size(); ++dim) {
    for (const Offset& offset : access.offsets[dim]) sums[dim] += value_of(offset, env);
  }
  return sums;
}

std::vector<int64_t> pad_of(const at::Tensor& tensor, const Access& access, const Env& env) {
  const Ints before = offsets_of(access, env);
  std::vector<int64_t> pad;  // before and after each dim, from the last dim on
  for (size_t dim = before.size(); dim-- > 0;) {
    const int64_t size = tensor.sizes()[dim], whole = env.integer(access.sizes[dim]);
    // If the tensor is completely outside the dim, crop exactly all its elements: ATen does not allow more.
    const int64_t first = before[dim] >= whole || before[dim] + size <= 0 ? whole : before[dim];
    pad.push_back(first);
    pad.push_back(whole - first - size);
  }
  return pad;
}

std::optional<PaddedPlace> place_padded(const at::Tensor& tensor, const Access& access, at::IntArrayRef domain, const Env& env) {
  const Ints before = offsets_of(access, env);
  const auto bytes = static_cast<int64_t>(tensor.element_size());
  Ints strides(tensor.strides().begin(), tensor.strides().end());
  for (int64_t& stride : strides) stride *= bytes;
  PaddedPlace place;
  for (const int64_t size : domain) place.spans.push_back({0, size});
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    const int64_t first = before[dim], size = tensor.sizes()[dim], whole = env.integer(access.sizes[dim]);
    place.first -= first * strides[dim];
    if (first == 0 && size == whole) continue;
    const Span span{std::clamp<int64_t>(first, 0, whole), std::clamp<int64_t>(first + size, 0, whole)};
    if (span.begin >= span.end) return std::nullopt;
    for (size_t axis = 0; axis < domain.size(); ++axis) {
      if (access.dim_of_axis[axis] == static_cast<int8_t>(dim) && domain[axis] == whole) place.spans[axis] = span;
    }
  }
  place.steps.resize(domain.size(), 0);
  for (size_t axis = domain.size(); axis-- > 0;) {
    if (access.dim_of_axis[axis] < 0) continue;
    int64_t& stride = strides[static_cast<size_t>(access.dim_of_axis[axis])];
    place.steps[axis] = stride;
    stride *= domain[axis];
  }
  return place;
}

c10::SmallVector<Loop, 4> make_nest(at::IntArrayRef domain, c10::ArrayRef<uint8_t> axes, c10::ArrayRef<Ints> steps,
                                    c10::ArrayRef<Spans> spans) {
  c10::SmallVector<Loop, 4> nest;
  for (const uint8_t axis : axes) {
    if (domain[axis] == 1) continue;
    Loop loop{domain[axis], {}};
    for (const Ints& step : steps) loop.steps.push_back(step[axis]);
    bool is_cut = false;  // padded along this axis, so it cannot be merged with the axis outside it
    for (const auto& of_tensor : spans) {
      loop.spans.push_back(of_tensor.empty() ? Span{0, loop.size} : of_tensor[axis]);
      is_cut = is_cut || !loop.spans.back().is_all_of(loop.size);
    }
    bool one = !nest.empty() && !is_cut;
    for (size_t i = 0; i < steps.size() && one; ++i) {
      // An operand that is broadcast along this axis and padded along the outer one must not become one loop: the kernel would read it as
      // broadcast along all of the loop.
      const bool stands_still_in_part =
          loop.steps[i] == 0 && !nest.back().spans.empty() && !nest.back().spans[i].is_all_of(nest.back().size);
      one = nest.back().steps[i] == loop.steps[i] * loop.size && !stands_still_in_part;
    }
    if (one) {
      nest.back().size *= loop.size;
      nest.back().steps = std::move(loop.steps);
      for (Span& span : nest.back().spans) span = {span.begin * loop.size, span.end * loop.size};
    } else {
      nest.push_back(std::move(loop));
    }
  }
  if (nest.empty()) nest.push_back({1, c10::SmallVector<int64_t, 32>(steps.size(), 0)});
  return nest;
}

}  // namespace hindcast::codegen
