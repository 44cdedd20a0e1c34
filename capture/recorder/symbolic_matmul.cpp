#include "capture/recorder/symbolic_composites.h"

#include "capture/graph/known_op.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <torch/library.h>

#include <algorithm>

namespace hindcast::capture {
namespace {

using at::Tensor;
using c10::SymDimVector;
using c10::SymInt;

bool is_wanted(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  if (!(is_symbolic(a) || is_symbolic(b)) || others_come_first(keys)) return false;
  return std::min(a.dim(), b.dim()) >= 1 && std::max(a.dim(), b.dim()) >= 3;
}

SymInt product_of(const SymDimVector& sizes) {
  SymInt product = 1;
  for (const SymInt& size : sizes) product *= size;
  return product;
}

// Whether the batch of the factor with more dims becomes rows of one matrix, by the rules of ATen's should_fold().
bool folds(const Tensor& a, const Tensor& b) {
  const bool is_a_larger = a.dim() >= b.dim();
  const Tensor larger = is_a_larger ? a : b.mT();
  const Tensor& smaller = is_a_larger ? b : a;
  if (larger.dim() < 3 || smaller.dim() > 2) return false;
  if (smaller.requires_grad()) return true;
  if (a.dim() == 2) return false;
  if (larger.sym_numel() == 0) return true;
  const auto sizes = larger.sym_sizes(), strides = larger.sym_strides();
  for (int64_t dim = 0; dim < larger.dim() - 2; ++dim) {
    const auto i = static_cast<size_t>(dim);
    if (strides[i] != strides[i + 1] * sizes[i + 1]) return false;
  }
  return true;
}

Tensor folded(const Tensor& a, const Tensor& b) {
  const bool is_turned = b.dim() > a.dim();
  const Tensor larger = is_turned ? b.mT() : a;
  const Tensor smaller = !is_turned ? b : a.dim() == 2 ? a.t() : a;
  const auto sizes = larger.sym_sizes();
  SymDimVector result_sizes(sizes.begin(), sizes.end() - 1);
  const Tensor rows = larger.reshape_symint({product_of(result_sizes), sizes.back()});
  if (smaller.dim() == 1) return at::_unsafe_view_symint(rows.mv(smaller), result_sizes);
  result_sizes.push_back(smaller.sym_size(1));
  const Tensor result = at::_unsafe_view_symint(rows.mm(smaller), result_sizes);
  return is_turned ? result.mT().contiguous() : result;
}

SymDimVector with(SymDimVector batch, std::initializer_list<SymInt> last) {
  batch.append(last.begin(), last.end());
  return batch;
}

Tensor batched(const Tensor& a, const Tensor& b) {
  const bool is_vector = b.dim() == 1;
  const SymInt rows = a.dim() > 1 ? a.sym_size(-2) : SymInt(1), inner = a.sym_size(-1);
  const SymInt inner_of_b = is_vector ? b.sym_size(0) : b.sym_size(-2), columns = is_vector ? SymInt(1) : b.sym_size(-1);
  const auto batch_of = [](const Tensor& tensor) {
    return tensor.sym_sizes().slice(0, static_cast<size_t>(std::max<int64_t>(tensor.dim() - 2, 0)));
  };
  const SymDimVector batch = at::infer_size_symdimvector(batch_of(a), batch_of(b));
  const SymInt count = product_of(batch);
  const Tensor left = a.expand_symint(with(batch, {rows, inner})).reshape_symint({count, rows, inner});
  Tensor right = b.expand_symint(is_vector ? with(batch, {inner_of_b}) : with(batch, {inner_of_b, columns}));
  right = is_vector ? right.reshape_symint({count, inner_of_b}).unsqueeze(2) : right.reshape_symint({count, inner_of_b, columns});
  SymDimVector result_sizes = batch;
  if (a.dim() > 1) result_sizes.push_back(rows);
  if (!is_vector) result_sizes.push_back(columns);
  const Tensor result = left.bmm(right);
  return at::_unsafe_view_symint(is_vector ? result.squeeze(-1) : result, result_sizes);
}

Tensor matmul_of(const Tensor& a, const Tensor& b) {
  if (folds(a, b)) return folded(a, b);
  if (a.dim() == 3 && b.dim() == 3 && a.sym_size(0) != b.sym_size(0)) {  // a batch of one is no broadcast
    if (a.sym_size(0) == 1 && (a.requires_grad() || at::isTensorSubclassLike(a))) return a.squeeze(0).matmul(b);
    if (b.sym_size(0) == 1 && (b.requires_grad() || at::isTensorSubclassLike(b))) return a.matmul(b.squeeze(0));
  }
  return batched(a, b);
}

Tensor symbolic_matmul(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  if (is_wanted(keys, a, b)) return matmul_of(a, b);
  static constinit KnownOp matmul("aten::matmul");
  return matmul.get().typed<Tensor(const Tensor&, const Tensor&)>().redispatch(below_symbolic_composites(keys), a, b);
}

}  // namespace

void implement_symbolic_matmul(torch::Library& aten) { aten.impl("matmul", TORCH_FN(symbolic_matmul)); }

}  // namespace hindcast::capture
