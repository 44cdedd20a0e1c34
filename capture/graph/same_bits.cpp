#include "capture/graph/same_bits.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hindcast::capture {

at::Tensor clone_exactly(const at::Tensor& tensor) {
  if (tensor.is_conj()) return at::conj(clone_exactly(at::conj(tensor)));
  if (tensor.is_neg()) return at::_neg_view(clone_exactly(at::_neg_view(tensor)));
  int64_t span = tensor.numel() == 0 ? 0 : 1;  // elements from the first to the last, gaps included
  for (int64_t d = 0; span > 0 && d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
  const auto past_line = [](const at::Tensor& t) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64); };
  const int64_t item = static_cast<int64_t>(tensor.element_size());
  const at::Tensor memory = at::empty({span + 64 / item}, tensor.options());
  const int64_t offset = (past_line(tensor) - past_line(memory) + 64) % 64 / item;
  memory.narrow(0, offset, span).copy_(at::as_strided(tensor, {span}, {1}));
  at::Tensor clone = at::as_strided(memory, tensor.sizes(), tensor.strides(), offset);
  // A wrapped Python number has less weight in type promotion than a 0-dim tensor.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) clone.unsafeGetTensorImpl()->set_wrapped_number(true);
  return clone;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b, Zeros zeros) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  const at::Tensor left = a.is_complex() ? at::view_as_real(a.resolve_conj()) : a;
  const at::Tensor right = b.is_complex() ? at::view_as_real(b.resolve_conj()) : b;
  at::Tensor same = left == right;
  if (left.is_floating_point()) {
    if (zeros == Zeros::Signed) same = at::logical_and(same, at::signbit(left) == at::signbit(right));
    same = at::logical_or(same, at::logical_and(left != left, right != right));
  }
  return same.all().item<bool>();
}

bool nearly_same(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  if (!a.is_floating_point() && !a.is_complex()) return same_bits(a, b);
  const at::ScalarType real = c10::toRealValueType(a.scalar_type());
  const double tolerance = real == at::kDouble ? 1e-10 : real == at::kFloat ? 1e-4 : 1e-1;
  const at::Tensor size = a.abs().nan_to_num(0, 0, 0).amax();
  return at::allclose(a, b, tolerance, tolerance * size.item<double>(), /*equal_nan=*/true);
}

}  // namespace hindcast::capture
