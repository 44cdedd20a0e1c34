#include "engine/diagnosis/non_finite.h"

#include "codegen/kernel/backend.h"
#include "base/format.h"

#include <ATen/ATen.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <sstream>

namespace hindcast::engine {
namespace {

bool can_be_read(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && tensor.layout() == at::kStrided && !at::isTensorSubclassLike(tensor) &&
         !tensor._is_zerotensor() && !tensor.is_quantized() && (tensor.is_floating_point() || tensor.is_complex());
}

bool is_sparse(const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == at::kSparse; }

bool in_dense(const at::Tensor& tensor) {
  if (const codegen::Backend* const backend = codegen::backend_of(tensor.device().type())) return backend->has_non_finite(tensor);
  return !at::isfinite(tensor).all().item<bool>();
}

std::string text(const at::Scalar& scalar) {
  std::ostringstream out;
  if (scalar.isComplex()) {
    out << scalar.toComplexDouble();
  } else {
    out << scalar.toDouble();
  }
  return out.str();
}

// For complex numbers, the range of absolute values.
std::string range_of(const at::Tensor& finite) {
  const at::Tensor numbers = finite.is_complex() ? finite.abs() : finite.to(at::kDouble);
  return base::format("from {} to {}", text(numbers.min().item()), text(numbers.max().item()));
}

}  // namespace

bool has_non_finite(const at::Tensor& tensor) {
  if (is_sparse(tensor)) return has_non_finite(tensor._values());
  if (!can_be_read(tensor) || tensor.numel() == 0) return false;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (tensor.is_non_overlapping_and_dense()) return in_dense(tensor);
  // Checks broadcast elements once. If gaps remain, checks a copy.
  at::Tensor rest = tensor;
  for (int64_t d = 0; d < rest.dim(); ++d) {
    if (rest.stride(d) == 0) rest = rest.narrow(d, 0, 1);
  }
  return in_dense(rest.is_non_overlapping_and_dense() ? rest : rest.contiguous());
}

std::string describe_values(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (is_sparse(tensor)) return base::format("sparse {}, values {}", tensor.sizes(), describe_values(tensor._values()));
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
