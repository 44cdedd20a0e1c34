// Factorisations, inverses and solutions of batches of matrices.

#include "capture/shape_rules/shape_call.h"

namespace hindcast::capture {
namespace {

/// Matrices [..., m, n], and k = min(m, n).
struct Matrices {
  Matrices(const ShapeCall& call, std::string_view name) : sizes(call.tensor(name)) {
    require(sizes.size() >= 2);
    batch.assign(sizes.begin(), sizes.end() - 2);
    m = *(sizes.end() - 2);
    n = sizes.back();
    k = m == n ? m : call.symbols.min(m, n);
  }
  Sizes of(std::initializer_list<ExprId> last) const {
    Sizes all = batch;
    all.insert(all.end(), last.begin(), last.end());
    return all;
  }

  const Sizes& sizes;
  Sizes batch;
  ExprId m, n, k;
};

/// What an output is that the caller does not want.
Sizes nothing(const ShapeCall& call) { return {call.constant(0)}; }

Outputs with_info(const ShapeCall& call) {
  const Matrices a(call, call.likes);
  return {a.sizes, a.batch};
}

Outputs with_pivots(const ShapeCall& call) {
  const Matrices a(call, call.likes);
  return {a.sizes, a.of({a.k}), a.batch};
}

/// `likes` names the matrices.
Outputs solution(const ShapeCall& call) {
  const Matrices a(call, call.likes), b(call, "B");
  Sizes sizes = call.broadcast(a.batch, b.batch);
  sizes.insert(sizes.end(), {b.m, b.n});
  return {sizes};
}

/// The right-hand sides come first.
Outputs triangular_solve(const ShapeCall& call) {
  const Matrices b(call, "self"), a(call, "A");
  Sizes solution = call.broadcast(a.batch, b.batch), coefficients = solution;
  solution.insert(solution.end(), {b.m, b.n});
  coefficients.insert(coefficients.end(), {a.m, a.n});
  return {solution, coefficients};
}

/// B is a batch of vectors if it has the sizes of A without the last.
Outputs solve(const ShapeCall& call) {
  const Matrices a(call, "A");
  const Sizes& b = call.tensor("B");
  bool is_vector = b.size() == 1;
  if (!is_vector && b.size() + 1 == a.sizes.size()) {
    is_vector = true;
    for (size_t i = 0; is_vector && i < b.size(); ++i) is_vector = call.symbols.equal(b[i], a.sizes[i]);
  }
  const size_t own = is_vector ? 1 : 2;
  require(b.size() >= own);
  Sizes result = call.broadcast(a.batch, Sizes(b.begin(), b.end() - static_cast<ptrdiff_t>(own)));
  result.insert(result.end(), b.end() - static_cast<ptrdiff_t>(own), b.end());
  return {result, a.sizes, a.of({a.n}), a.batch};
}

Outputs svd(const ShapeCall& call) {
  const Matrices a(call, "A");
  if (!call.flag("compute_uv")) return {nothing(call), a.of({a.k}), nothing(call)};
  const bool is_full = call.flag("full_matrices");
  return {a.of({a.m, is_full ? a.m : a.k}), a.of({a.k}), a.of({is_full ? a.n : a.k, a.n})};
}

Outputs eigh(const ShapeCall& call) {
  const Matrices a(call, "A");
  return {a.of({a.n}), call.flag("compute_v") ? a.sizes : nothing(call)};
}

Outputs eig(const ShapeCall& call) {
  const Matrices a(call, "self");
  return {a.of({a.n}), a.sizes};
}

Outputs qr(const ShapeCall& call) {
  const Matrices a(call, "A");
  const std::string_view mode = call.text("mode");
  if (mode == "complete") return {a.of({a.m, a.m}), a.sizes};
  require(mode == "reduced" || mode == "r");
  return {mode == "r" ? nothing(call) : a.of({a.m, a.k}), a.of({a.k, a.n})};
}

Outputs lu(const ShapeCall& call) {
  const Matrices a(call, "A");
  return {call.flag("pivot") ? a.of({a.m, a.m}) : nothing(call), a.of({a.m, a.k}), a.of({a.k, a.n})};
}

Outputs lu_unpack(const ShapeCall& call) {
  const Matrices lu(call, "LU_data");
  const bool has_factors = call.flag("unpack_data");
  const Sizes none = nothing(call);
  return {call.flag("unpack_pivots") ? lu.of({lu.m, lu.m}) : none, has_factors ? lu.of({lu.m, lu.k}) : none,
          has_factors ? lu.of({lu.k, lu.n}) : none};
}

Outputs geqrf(const ShapeCall& call) {
  const Matrices a(call, "self");
  return {a.sizes, a.of({a.k})};
}

Outputs pinv(const ShapeCall& call) {
  const Matrices a(call, "self");
  return {a.of({a.n, a.m})};
}

/// One distance for each pair of rows.
Outputs distances_of_pairs(const ShapeCall& call) {
  const Matrices a(call, "self");
  require(a.batch.empty());
  SymbolTable& symbols = call.symbols;
  return {{symbols.div(symbols.mul(a.m, symbols.sub(a.m, call.constant(1))), call.constant(2))}};
}

constexpr RuleRow kLinalgRules[] = {
    {"linalg_cholesky_ex", with_info, "self"},
    {"linalg_inv_ex", with_info, "A"},
    {"linalg_lu_factor_ex", with_pivots, "A"},
    {"linalg_ldl_factor_ex", with_pivots, "self"},
    {"linalg_solve_triangular", solution, "self"},
    {"linalg_lu_solve", solution, "LU"},
    {"triangular_solve", triangular_solve},
    {"_linalg_solve_ex", solve},
    {"_linalg_svd", svd},
    {"_linalg_eigh", eigh},
    {"linalg_eig", eig},
    {"linalg_qr", qr},
    {"linalg_lu", lu},
    {"lu_unpack", lu_unpack},
    {"geqrf", geqrf},
    {"linalg_pinv.atol_rtol_tensor", pinv},
    {"linalg_cross", broadcast_all},
    {"_pdist_forward", distances_of_pairs},
};

}  // namespace

std::span<const RuleRow> linalg_rules() { return kLinalgRules; }

}  // namespace hindcast::capture
