// Reduced dimensions are removed, or kept with size 1.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {
namespace {

Sizes without(const ShapeCall& call, const Sizes& sizes, const std::vector<size_t>& dims, bool keepdim) {
  Sizes rest;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end())
      rest.push_back(sizes[d]);
    else if (keepdim)
      rest.push_back(call.constant(1));
  }
  return rest;
}

bool keeps_dims(const ShapeCall& call) { return call.has("keepdim") && call.flag("keepdim"); }

std::vector<size_t> wrapped(const std::vector<int64_t>& dims, size_t rank) {
  std::vector<size_t> found;
  for (const int64_t dim : dims) found.push_back(wrap_dim(dim, rank));
  return found;
}

Outputs to_scalars(const ShapeCall& call) { return Outputs(call.outputs()); }

// No dims, or an empty list of them, means all.
Outputs over_dims(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  std::vector<size_t> dims = wrapped(call.numbers("dim"), self.size());
  if (dims.empty()) {
    for (size_t d = 0; d < self.size(); ++d) dims.push_back(d);
  }
  return Outputs(call.outputs(), without(call, self, dims, keeps_dims(call)));
}

// all and any take an empty list as no dimensions.
Outputs over_listed_dims(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  if (!call.has("dim")) return over_dims(call);
  return {without(call, self, wrapped(call.numbers("dim"), self.size()), keeps_dims(call))};
}

Outputs over_one_dim(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  return Outputs(call.outputs(), without(call, self, {call.dim("dim", self.size())}, keeps_dims(call)));
}

Outputs topk(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const size_t dim = call.dim("dim", sizes.size());
  if (!sizes.empty()) sizes[dim] = call.integer("k");
  return {sizes, sizes};
}

Outputs glu(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  ExprId& half = sizes.at(call.dim("dim", sizes.size()));
  half = call.symbols.div(half, call.constant(2));
  return {sizes};
}

Outputs fft_real_to_complex(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const auto dims = call.numbers("dim");
  require(!dims.empty());
  ExprId& last = sizes.at(wrap_dim(dims.back(), sizes.size()));
  if (call.flag("onesided")) last = call.symbols.add(call.symbols.div(last, call.constant(2)), call.constant(1));
  return {sizes};
}

Outputs fft_complex_to_real(const ShapeCall& call) {
  Sizes sizes = call.tensor("self");
  const auto dims = call.numbers("dim");
  require(!dims.empty());
  sizes.at(wrap_dim(dims.back(), sizes.size())) = call.integer("last_dim_size");
  return {sizes};
}

Outputs histc(const ShapeCall& call) { return {{call.integer("bins")}}; }

constexpr RuleRow kReductionRules[] = {
    {"sum mean prod all any max min median nanmedian norm.Scalar norm.ScalarOpt_dtype trace dist _aminmax dot "
     "vdot _is_all_true _is_any_true native_norm",
     to_scalars},
    {"sum.dim_IntList mean.dim nansum amax amin argmax argmin aminmax logsumexp std.correction var.correction "
     "std_mean.correction var_mean.correction norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype linalg_vector_norm "
     "count_nonzero count_nonzero.dim_IntList native_norm.ScalarOpt_dim_dtype",
     over_dims},
    {"all.dims any.dims", over_listed_dims},
    {"all.dim any.dim prod.dim_int max.dim min.dim median.dim nanmedian.dim mode kthvalue _aminmax.dim", over_one_dim},
    {"topk", topk},
    {"glu", glu},
    {"glu_backward _fft_c2c", same_as, "self"},
    {"_fft_r2c", fft_real_to_complex},
    {"_fft_c2r", fft_complex_to_real},
    {"histc", histc},
};

}  // namespace

std::span<const RuleRow> reduction_rules() { return kReductionRules; }

}  // namespace hindcast::capture
