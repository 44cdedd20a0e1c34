// Products of vectors and matrices.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

/// Rows of `a` by columns of `b`; the inner sizes are equal.
Sizes matrix_product(const ShapeCall& call, const Sizes& a, const Sizes& b) {
  require(a.size() == 2 && b.size() == 2);
  call.same(a[1], b[0]);
  return {a[0], b[1]};
}

Sizes batched_product(const ShapeCall& call, const Sizes& a, const Sizes& b) {
  require(a.size() == 3 && b.size() == 3);
  call.same(a[2], b[1]);
  return {call.same(a[0], b[0]), a[1], b[2]};
}

Sizes matrix_vector(const ShapeCall& call, const Sizes& matrix, const Sizes& vector) {
  require(matrix.size() == 2 && vector.size() == 1);
  call.same(matrix[1], vector[0]);
  return {matrix[0]};
}

/// The added tensor is broadcast to the product.
Outputs added(const ShapeCall& call, const Sizes& product) { return {call.same(call.broadcast(product, call.tensor("self")), product)}; }

Outputs mm(const ShapeCall& call) { return {matrix_product(call, call.tensor("self"), call.tensor("mat2"))}; }
Outputs bmm(const ShapeCall& call) { return {batched_product(call, call.tensor("self"), call.tensor("mat2"))}; }
Outputs mv(const ShapeCall& call) { return {matrix_vector(call, call.tensor("self"), call.tensor("vec"))}; }

Outputs addmm(const ShapeCall& call) { return added(call, matrix_product(call, call.tensor("mat1"), call.tensor("mat2"))); }

Outputs addmv(const ShapeCall& call) { return added(call, matrix_vector(call, call.tensor("mat"), call.tensor("vec"))); }

Outputs baddbmm(const ShapeCall& call) { return added(call, batched_product(call, call.tensor("batch1"), call.tensor("batch2"))); }

Outputs addbmm(const ShapeCall& call) {
  Sizes product = batched_product(call, call.tensor("batch1"), call.tensor("batch2"));
  product.erase(product.begin());
  return added(call, product);
}

Sizes outer_product(const Sizes& a, const Sizes& b) {
  require(a.size() == 1 && b.size() == 1);
  return {a[0], b[0]};
}

Outputs outer(const ShapeCall& call) { return {outer_product(call.tensor("self"), call.tensor("vec2"))}; }
Outputs addr(const ShapeCall& call) { return added(call, outer_product(call.tensor("vec1"), call.tensor("vec2"))); }

Outputs linear(const ShapeCall& call) {
  Sizes sizes = call.tensor(call.likes);
  const Sizes& weight = call.tensor("weight");
  require(!sizes.empty() && !weight.empty());
  call.same(sizes.back(), weight.back());
  sizes.pop_back();
  if (weight.size() == 2) sizes.push_back(weight[0]);
  return {sizes};
}

/// Three tensors, each unsqueezed to broadcast, multiplied and summed.
Outputs trilinear(const ShapeCall& call) {
  const auto widened = [&](std::string_view tensor, std::string_view expand) {
    Sizes sizes = call.tensor(tensor);
    for (const int64_t dim : call.numbers(expand)) {
      sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(wrap_dim(dim, sizes.size() + 1)), call.constant(1));
    }
    return sizes;
  };
  const Sizes all = call.broadcast(call.broadcast(widened("i1", "expand1"), widened("i2", "expand2")), widened("i3", "expand3"));
  const auto summed = call.numbers("sumdim");
  Sizes sizes;
  for (size_t d = 0; d < all.size(); ++d) {
    if (std::find(summed.begin(), summed.end(), static_cast<int64_t>(d)) == summed.end()) sizes.push_back(all[d]);
  }
  return {sizes};
}

/// [..., rows, k] and [..., columns, k] -> [..., rows, columns], all but the last two dimensions broadcast.
Outputs distances(const ShapeCall& call) {
  const Sizes& a = call.tensor("x1");
  const Sizes& b = call.tensor("x2");
  require(a.size() >= 2 && b.size() >= 2);
  Sizes sizes = call.broadcast(Sizes(a.begin(), a.end() - 2), Sizes(b.begin(), b.end() - 2));
  sizes.insert(sizes.end(), {*(a.end() - 2), *(b.end() - 2)});
  return {sizes};
}

Outputs distances_gradient(const ShapeCall& call) {
  const Sizes& a = call.tensor("x1");
  const Sizes& b = call.tensor("x2");
  require(a.size() >= 2 && b.size() >= 2);
  Sizes sizes = call.broadcast(Sizes(a.begin(), a.end() - 2), Sizes(b.begin(), b.end() - 2));
  sizes.insert(sizes.end(), a.end() - 2, a.end());
  return {sizes};
}

constexpr RuleRow kMatmulRules[] = {
    {"mm mm.dtype _int_mm", mm},
    {"bmm bmm.dtype", bmm},
    {"mv", mv},
    {"addmm addmm.dtype _addmm_activation", addmm},
    {"addmv", addmv},
    {"baddbmm baddbmm.dtype", baddbmm},
    {"addbmm", addbmm},
    {"addr", addr},
    {"outer ger", outer},
    {"linear", linear, "input"},
    {"mkldnn_linear", linear, "self"},
    {"_trilinear", trilinear},
    {"_cdist_forward _euclidean_dist", distances},
    {"_cdist_backward", distances_gradient},
    {"_pdist_backward", same_as, "self"},
};

}  // namespace

std::span<const RuleRow> matmul_rules() { return kMatmulRules; }

}  // namespace hindcast::capture
