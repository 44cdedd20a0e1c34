#include "engine/diagnosis/non_finite.h"

#include "codegen/cpu/parallel.h"
#include "base/format.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <atomic>
#include <cstring>
#include <sstream>

namespace hindcast::engine {
namespace {

constexpr int64_t kGrain = 1 << 18;  // elements for a thread, at least

// An exponent of all ones is an infinity or a NaN: without its sign, adding one to the exponent carries into the sign bit. Integers,
// as sums of floats have an order that no vectoriser may change; a block of known length, as GCC's -O2 asks for that.
template <class Bits, Bits kExponentStep>
bool any_non_finite(const Bits* bits, int64_t count) {
  constexpr int kBlock = 256;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  constexpr Bits kNotSign = static_cast<Bits>(kSign - 1);
  Bits seen = 0;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int k = 0; k < kBlock; ++k) seen |= static_cast<Bits>((bits[i + k] & kNotSign) + kExponentStep);
  }
  for (; i < count; ++i) seen |= static_cast<Bits>((bits[i] & kNotSign) + kExponentStep);
  return (seen & kSign) != 0;
}

template <class Bits, Bits kExponentStep>
bool in_memory(const at::Tensor& tensor, int64_t count) {
  const auto* bits = static_cast<const Bits*>(tensor.const_data_ptr());
  std::atomic<bool> found = false;
  codegen::run_ranges(count, kGrain, [&](int64_t begin, int64_t end) {
    if (any_non_finite<Bits, kExponentStep>(bits + begin, end - begin)) found.store(true, std::memory_order_relaxed);
  });
  return found;
}

bool in_dense(const at::Tensor& tensor) {
  const int64_t count = tensor.numel();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return in_memory<uint32_t, 0x00800000>(tensor, count);
    case at::kDouble:
      return in_memory<uint64_t, 0x0010000000000000>(tensor, count);
    case at::kBFloat16:
      return in_memory<uint16_t, 0x0080>(tensor, count);
    case at::kHalf:
      return in_memory<uint16_t, 0x0400>(tensor, count);
    case at::kComplexFloat:
      return in_memory<uint32_t, 0x00800000>(tensor, 2 * count);
    case at::kComplexDouble:
      return in_memory<uint64_t, 0x0010000000000000>(tensor, 2 * count);
    default:
      return false;
  }
}

bool can_be_read(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && !at::isTensorSubclassLike(tensor) &&
         !tensor._is_zerotensor() && !tensor.is_quantized() && (tensor.is_floating_point() || tensor.is_complex());
}

bool is_sparse_on_cpu(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kSparse; }

std::string text(const at::Scalar& scalar) {
  std::ostringstream out;
  if (scalar.isComplex()) {
    out << scalar.toComplexDouble();
  } else {
    out << scalar.toDouble();
  }
  return out.str();
}

// For complex numbers absolute values are what has a range.
std::string range_of(const at::Tensor& finite) {
  const at::Tensor numbers = finite.is_complex() ? finite.abs() : finite.to(at::kDouble);
  return base::format("from {} to {}", text(numbers.min().item()), text(numbers.max().item()));
}

}  // namespace

bool has_non_finite(const at::Tensor& tensor) {
  if (is_sparse_on_cpu(tensor)) return has_non_finite(tensor._values());
  if (!can_be_read(tensor) || tensor.numel() == 0) return false;
  if (tensor.is_non_overlapping_and_dense()) return in_dense(tensor);
  // Of what is broadcast, once is enough. What then still has gaps is copied.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor rest = tensor;
  for (int64_t d = 0; d < rest.dim(); ++d) {
    if (rest.stride(d) == 0) rest = rest.narrow(d, 0, 1);
  }
  return in_dense(rest.is_non_overlapping_and_dense() ? rest : rest.contiguous());
}

std::string describe_values(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (is_sparse_on_cpu(tensor)) return base::format("sparse {}, values {}", tensor.sizes(), describe_values(tensor._values()));
  std::string result = base::format("{}{}", c10::toString(tensor.scalar_type()), tensor.sizes());
  if (!can_be_read(tensor) || tensor.numel() == 0) return result;
  const at::Tensor is_finite = at::isfinite(tensor), finite = tensor.masked_select(is_finite);
  if (finite.numel() < tensor.numel()) {
    const at::Tensor place = is_finite.logical_not().nonzero()[0];
    at::Tensor first = tensor;
    std::vector<int64_t> index;
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      index.push_back(place[d].item<int64_t>());
      first = first.select(0, index.back());
    }
    const int64_t nans = at::isnan(tensor).sum().item<int64_t>();
    result +=
        base::format(", {} infinite, {} NaN, the first at {}: {}", tensor.numel() - finite.numel() - nans, nans, index, text(first.item()));
    if (finite.numel() != 0) result += "; the finite ones";
  } else {
    result += ",";
  }
  return finite.numel() == 0 ? result : result + " " + range_of(finite);
}

}  // namespace hindcast::engine
