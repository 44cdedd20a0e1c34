// Elementwise ops: broadcasting, and outputs with the sizes of an argument. Ops with LibTorch's `pointwise` tag, or with a row in
// base/pointwise_ops.def, need no row here.

#include "capture/shape_rules/shape_call.h"

#include <algorithm>

namespace hindcast::capture {

Outputs broadcast_all(const ShapeCall& call) {
  std::optional<Sizes> all;
  for (const Argument& argument : call.args()) {
    if (const auto* sizes = std::get_if<Sizes>(&argument.value)) all = all ? call.broadcast(*all, *sizes) : *sizes;
  }
  require(all.has_value());
  return Outputs(call.outputs(), *all);
}

Outputs same_as(const ShapeCall& call) {
  const auto names = words(call.likes);
  Outputs outputs;
  for (size_t i = 0; i < call.outputs(); ++i) {
    const std::string_view name = names[std::min(i, names.size() - 1)];
    const bool undefined = call.real(i).empty();
    outputs.push_back(undefined && !call.has_tensor(name) ? Sizes{} : call.unless_undefined(i, call.tensor(name)));
  }
  return outputs;
}

namespace {

// The CPU saves one number per element, CUDA none.
Outputs log_sigmoid_forward(const ShapeCall& call) {
  const Sizes& self = call.tensor("self");
  const bool none = call.outputs() == 2 && call.real(1) == std::vector<int64_t>{0} && call.real(0) != call.real(1);
  return {self, none ? Sizes{call.constant(0)} : self};
}

/// Broadcasts the arguments named in `likes`; further tensors do not take part.
Outputs broadcast_named(const ShapeCall& call) {
  Sizes all;
  for (const std::string_view name : words(call.likes)) all = call.broadcast(all, call.tensor(name));
  return {all};
}

constexpr RuleRow kPointwiseRules[] = {
    {"copy fill.* floor_divide.* masked_fill.* rsub.Tensor complex polar copysign.* _prelu_kernel_backward _masked_scale _add_relu.* "
     "binomial normal.Tensor_Tensor ldexp.* heaviside isclose",
     broadcast_all},
    {"log_sigmoid_forward", log_sigmoid_forward},
    {"log_sigmoid_backward rrelu_with_noise_backward", broadcast_named, "grad_output self"},
    {"masked_scatter", broadcast_named, "self mask"},
    {"alias detach clone contiguous _to_copy _conj conj resolve_conj _neg_view resolve_neg lift "
     "lift_fresh lift_fresh_copy _lazy_clone _pin_memory rrelu_with_noise "
     "bernoulli bernoulli.p bernoulli.Tensor poisson _standard_gamma _standard_gamma_grad "
     "_sample_dirichlet normal_functional _fused_dropout empty_like zeros_like ones_like full_like rand_like "
     "rand_like.generator randn_like randn_like.generator randint_like.* cumsum cumprod logcumsumexp cummax "
     "cummin tril triu flip roll renorm index_add index_copy index_fill.* index_reduce index_put "
     "_unsafe_index_put _unsafe_masked_index_put_accumulate put scatter.* scatter_add scatter_reduce.* "
     "slice_scatter select_scatter diagonal_scatter as_strided_scatter cholesky cholesky_inverse "
     "linalg_matrix_exp channel_shuffle _softmax _log_softmax _safe_softmax _masked_softmax sort sort.stable "
     "argsort argsort.stable bucketize.Tensor searchsorted.Tensor",
     same_as, "self"},
    {"native_dropout", same_as, "input"},
    {"_dirichlet_grad", same_as, "x"},
    {"linalg_householder_product", same_as, "input"},
    {"normal.Tensor_float", same_as, "mean"},
    {"normal.float_Tensor", same_as, "std"},
    {"isin.Tensor_Tensor isin.Tensor_Scalar", same_as, "elements"},
    {"view_as reshape_as expand_as", same_as, "other"},
    {"resize_as_", same_as, "the_template"},
};

}  // namespace

std::span<const RuleRow> pointwise_rules() { return kPointwiseRules; }

std::span<const std::string_view> names_of_pointwise_ops() {
  static constexpr std::string_view kNames[] = {
#define HC_ATEN(op, how) op,
#define HC_OP(functor, operands, scalars, domain, result, cost, ...) __VA_ARGS__
#include "base/pointwise_ops.def"
  };
  return kNames;
}

}  // namespace hindcast::capture
